// RUN: distir-opt %s -p 'dtp-parallelize{dp=2}' 2>&1 | filecheck %s

// An input whose rows are not those of the others is whole on every replica, which is said.

// CHECK: distir: note: dtp-parallelize: not cut with the batch, as the first dim is no multiple of that of other inputs: 'edges' (3)
// CHECK: "onnx.MatMul"({{%\S+}}, {{%\S+}}) : (tensor<2x3xf32, #dist.on<0>>, tensor<3x5xf32, #dist.on<0>>)
func.func @main(%x: tensor<4x3xf32> {dist.name = "x", dist.role = "input"}, %y: tensor<4x5xf32> {dist.name = "y", dist.role = "input"}, %e: tensor<3x5xf32> {dist.name = "edges", dist.role = "input"}) -> tensor<4x5xf32> {
  %0 = "onnx.MatMul"(%x, %e) : (tensor<4x3xf32>, tensor<3x5xf32>) -> tensor<4x5xf32>
  %1 = "onnx.Add"(%0, %y) : (tensor<4x5xf32>, tensor<4x5xf32>) -> tensor<4x5xf32>
  func.return %1 : tensor<4x5xf32>
}
