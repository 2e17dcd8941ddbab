// RUN: distir-opt %s -p shardcombine-annotate,apply-sharding | filecheck %s

// A reshape's target is rewritten for the shard, on every device; the target for the whole is gone.

// CHECK:      func.func @main
// CHECK-NEXT: [[V0:%.*]] = onnx.Constant dense<[4, 1, 4]> : tensor<3xi64, #dist.on<0>>
// CHECK-NEXT: %y = "onnx.Reshape"(%x, [[V0]]) : (tensor<4x4xf32, #dist.on<0>>, tensor<3xi64, #dist.on<0>>) -> tensor<4x1x4xf32, #dist.on<0>>
// CHECK-NEXT: [[V1:%.*]] = onnx.Constant dense<[4, 1, 4]> : tensor<3xi64, #dist.on<1>>
// CHECK-NEXT: %y_1 = "onnx.Reshape"(%x_1, [[V1]])
// CHECK-NEXT: [[V2:%.*]] = onnx.Constant dense<[4, 1, 4]> : tensor<3xi64, #dist.on<2>>
// CHECK-NEXT: %y_2 = "onnx.Reshape"(%x_2, [[V2]])

dist.mesh @mesh = <["tp" = 3]>
func.func @main(%x: tensor<4x12xf32>) -> tensor<4x3x4xf32> {
  %shape = onnx.Constant dense<[4, 3, 4]> : tensor<3xi64>
  %y = "onnx.Reshape"(%x, %shape) {dist.strategy = #dist.strategy<@mesh, {"tp": S2}>} : (tensor<4x12xf32>, tensor<3xi64>) -> tensor<4x3x4xf32>
  func.return %y : tensor<4x3x4xf32>
}
