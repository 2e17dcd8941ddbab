// RUN: distir-opt %s -p shardcombine-annotate,apply-sharding | filecheck %s

// Addends of five rows, each of which is summed where it goes.

// CHECK:      func.func @main
// CHECK: dist.reducescatter sum {{.*}} dim 0 : {{.*}} -> (tensor<2x4xf32, #dist.on<0>>, tensor<3x4xf32, #dist.on<1>>)

dist.mesh @mesh = <["a" = 2]>
func.func @main(%x: tensor<5x6xf32>, %w: tensor<6x4xf32>) -> tensor<5x4xf32> {
  %h = "onnx.MatMul"(%x, %w) {dist.strategy = #dist.strategy<@mesh, {"a": S2}>} : (tensor<5x6xf32>, tensor<6x4xf32>) -> tensor<5x4xf32>
  %y = "onnx.Relu"(%h) {dist.strategy = #dist.strategy<@mesh, {"a": S1}>} : (tensor<5x4xf32>) -> tensor<5x4xf32>
  func.return %y : tensor<5x4xf32>
}
