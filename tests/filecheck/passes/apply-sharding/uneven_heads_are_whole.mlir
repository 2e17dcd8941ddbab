// RUN: distir-opt %s -p shardcombine-annotate,apply-sharding | filecheck %s

// Three heads of two columns: a head is not cut, so the second device has two of them.

// CHECK:      func.func @main
// CHECK-SAME: dist.part<[0:4, 0:2] of [4, 6]>
// CHECK-SAME: dist.part<[0:4, 2:6] of [4, 6]>
// CHECK:      [[S:%.*]] = onnx.Constant dense<[4, 1, 2]>
// CHECK-NEXT: "onnx.Reshape"(%x, [[S]]) {{.*}} -> tensor<4x1x2xf32, #dist.on<0>>
// CHECK-NEXT: [[S_1:%.*]] = onnx.Constant dense<[4, 2, 2]>
// CHECK-NEXT: "onnx.Reshape"(%x_1, [[S_1]]) {{.*}} -> tensor<4x2x2xf32, #dist.on<1>>

dist.mesh @mesh = <["a" = 2]>
func.func @main(%x: tensor<4x6xf32>) -> tensor<4x3x2xf32> {
  %shape = onnx.Constant dense<[4, 3, 2]> : tensor<3xi64>
  %y = "onnx.Reshape"(%x, %shape) {dist.strategy = #dist.strategy<@mesh, {"a": S2}>} : (tensor<4x6xf32>, tensor<3xi64>) -> tensor<4x3x2xf32>
  func.return %y : tensor<4x3x2xf32>
}
