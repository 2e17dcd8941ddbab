// A location that is a name is what the model calls the operation, which passes carry, errors say, and --print-debuginfo prints as a location again.
// RUN: distir-opt %s | filecheck %s
// RUN: distir-opt %s -p onnx-fold-shapes --print-debuginfo | filecheck %s --check-prefix=LOC
// RUN: not distir verify %S/Inputs/wrong_shapes.mlir %S/Inputs/wrong_shapes.mlir 2>&1 | filecheck %s --check-prefix=ERROR

// CHECK: "onnx.Relu"(%x) {dist.module = "blocks.3.mlp.act"}
// LOC: "onnx.Relu"(%x) {{.*}} loc("blocks.3.mlp.act")
// LOC-NEXT: "onnx.Tanh"(%h) {{.*}} loc("blocks.3.mlp.up")
// ERROR: onnx.MatMul
// ERROR-SAME: (in blocks.3.up)
func.func @main(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %h = "onnx.Relu"(%x) : (tensor<4x8xf32>) -> tensor<4x8xf32> loc("blocks.3.mlp.act")
  %y = "onnx.Tanh"(%h) {dist.module = "blocks.3.mlp.up"} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  func.return %y : tensor<4x8xf32>
}
