// RUN: distir-opt %s -p shardcombine-annotate,apply-sharding | filecheck %s

// Megatron's fused QKV: the weight is cut in pieces [4, 4, 4], so that each of the three parts of the product is cut.

// CHECK:      func.func @main
// CHECK-SAME: %w: tensor<8x6xf32, #dist.on<0>> {dist.name = "w", dist.part = #dist.part<[0:8, 0:2 + 4:6 + 8:10] of [8, 12]>}
// CHECK-SAME: %w_1: tensor<8x6xf32, #dist.on<1>> {dist.name = "w", dist.part = #dist.part<[0:8, 2:4 + 6:8 + 10:12] of [8, 12]>}
// CHECK-NEXT: [[H:%.*]] = "onnx.MatMul"(%x, %w)
// CHECK-NEXT: %h_1 = "onnx.MatMul"(%x_1, %w_1)
// CHECK-NEXT: [[V0:%.*]] = onnx.Constant dense<2> : tensor<3xi64, #dist.on<0>>
// CHECK-NEXT: "onnx.Split"([[H]], [[V0]])

dist.mesh @mesh = <["tp" = 2]>
func.func @main(%x: tensor<4x8xf32>, %w: tensor<8x12xf32>) -> (tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>) {
  %h = "onnx.MatMul"(%x, %w) {dist.strategy = #dist.strategy<@mesh, {"tp": S3(pieces = [4, 4, 4])}>} : (tensor<4x8xf32>, tensor<8x12xf32>) -> tensor<4x12xf32>
  %split = onnx.Constant dense<4> : tensor<3xi64>
  %q, %k, %v = "onnx.Split"(%h, %split) <{axis = 1 : si64}> {dist.strategy = #dist.strategy<@mesh, {"tp": S2}>} : (tensor<4x12xf32>, tensor<3xi64>) -> (tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>)
  func.return %q, %k, %v : tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>
}
