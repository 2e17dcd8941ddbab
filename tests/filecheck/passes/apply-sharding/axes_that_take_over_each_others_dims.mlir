// RUN: distir-opt %s -p shardcombine-annotate,apply-sharding | filecheck %s

// Axes take over each other's dims ("a" columns to rows, "b" rows to columns): one goes through the replicated value, so that no dim is ever cut twice.

// CHECK:      func.func @main(%x: tensor<2x6xf32, #dist.on<0>>
// CHECK-NEXT: [[A:%.*]], [[A_1:%.*]] = dist.allgather %x, %x_3 dim 1 : (tensor<2x6xf32, #dist.on<0>>, tensor<2x6xf32, #dist.on<3>>) -> (tensor<2x12xf32, #dist.on<0>>, tensor<2x12xf32, #dist.on<3>>)
// CHECK-NEXT: [[B:%.*]], [[B_1:%.*]] = dist.allgather %x_1, %x_4 dim 1
// CHECK-NEXT: [[C:%.*]], [[C_1:%.*]] = dist.allgather %x_2, %x_5 dim 1
// CHECK-NEXT: [[D:%\w+]], {{%\w+}}, {{%\w+}} = dist.alltoall [[A]], [[B]], [[C]] split 1 concat 0 : (tensor<2x12xf32, #dist.on<0>>, tensor<2x12xf32, #dist.on<1>>, tensor<2x12xf32, #dist.on<2>>) -> (tensor<6x4xf32, #dist.on<0>>, tensor<6x4xf32, #dist.on<1>>, tensor<6x4xf32, #dist.on<2>>)
// CHECK-NEXT: dist.alltoall [[A_1]], [[B_1]], [[C_1]] split 1 concat 0
// CHECK-NEXT: dist.slice [[D]] [0:3, 0:4]

dist.mesh @mesh = <["a" = 2, "b" = 3]>
func.func @main(%x: tensor<6x12xf32> {dist.sharding = #dist.sharding<@mesh, [{"b"}, {"a"}]>}) -> tensor<6x12xf32> {
  %y = "onnx.Neg"(%x) {dist.strategy = #dist.strategy<@mesh, {"a": S1, "b": S2}>} : (tensor<6x12xf32>) -> tensor<6x12xf32>
  func.return %y : tensor<6x12xf32>
}
