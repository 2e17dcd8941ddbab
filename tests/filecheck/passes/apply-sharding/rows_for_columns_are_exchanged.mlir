// RUN: distir-opt %s -p shardcombine-annotate,apply-sharding | filecheck %s

// Rows, then columns, then all of it: an exchange, then a gather.

// CHECK:      %0, %1 = dist.alltoall %a, %a_1 split 1 concat 0 : (tensor<2x6xf32, #dist.on<0>>, tensor<2x6xf32, #dist.on<1>>) -> (tensor<4x3xf32, #dist.on<0>>, tensor<4x3xf32, #dist.on<1>>)
// CHECK:      [[V2:%.*]], %3 = dist.allgather %b, %b_1 dim 1 : (tensor<4x3xf32, #dist.on<0>>, tensor<4x3xf32, #dist.on<1>>) -> (tensor<4x6xf32, #dist.on<0>>, tensor<4x6xf32, #dist.on<1>>)
// CHECK-NEXT: %c = "onnx.Neg"([[V2]])

dist.mesh @mesh = <["tp" = 2]>
func.func @main(%x: tensor<4x6xf32>) -> tensor<4x6xf32> {
  %a = "onnx.Neg"(%x) {dist.strategy = #dist.strategy<@mesh, {"tp": S1}>} : (tensor<4x6xf32>) -> tensor<4x6xf32>
  %b = "onnx.Neg"(%a) {dist.strategy = #dist.strategy<@mesh, {"tp": S2}>} : (tensor<4x6xf32>) -> tensor<4x6xf32>
  %c = "onnx.Neg"(%b) {dist.strategy = #dist.strategy<@mesh, {"tp": _}>} : (tensor<4x6xf32>) -> tensor<4x6xf32>
  func.return %c : tensor<4x6xf32>
}
