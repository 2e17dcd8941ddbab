// RUN: distir-opt %s -p batch-shard | filecheck %s

// Without the option, the mesh is the one that the module names.

// CHECK: dist.mesh @mesh = <["dp" = 4]>
// CHECK: "onnx.Mul"{{.*}}dist.strategy = #dist.strategy<@mesh, {"dp": S1}>
dist.mesh @mesh = <["dp" = 4]>
func.func @main(%x: tensor<8x4xf32> {dist.name = "x", dist.role = "input"}, %z: tensor<8x4xf32> {dist.name = "z", dist.role = "label"}) -> (tensor<8x4xf32> {dist.name = "y", dist.role = "output"}) {
  %y = "onnx.Mul"(%x, %z) : (tensor<8x4xf32>, tensor<8x4xf32>) -> tensor<8x4xf32>
  func.return %y : tensor<8x4xf32>
}
