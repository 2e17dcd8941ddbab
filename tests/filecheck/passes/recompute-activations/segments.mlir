// RUN: distir-opt %s -p 'recompute-activations{policy=full}' | filecheck %s

// Without layers, segments are cut where least crosses (%h: all others are larger), and an operation is repeated where the backward part first
// takes its result; what crosses is kept, and so is what is an output.

// CHECK:      %y = "onnx.MatMul"(%d, %u)
// CHECK-NEXT: [[C_1:%.*]] = "onnx.MatMul"(%h, %w)
// CHECK-NEXT: [[D_1:%.*]] = "onnx.Sin"([[C_1]])
// CHECK-NEXT: [[E:%.*]] = "onnx.Mul"([[D_1]], [[C_1]])
// CHECK-NEXT: [[A_1:%.*]] = "onnx.MatMul"(%x, %w)
// CHECK-NEXT: [[B_1:%.*]] = "onnx.Tanh"([[A_1]])
// CHECK-NEXT: [[F:%.*]] = "onnx.Mul"([[E]], [[B_1]])
// CHECK-NEXT: %g = "onnx.Mul"([[F]], [[A_1]])
func.func @main(%x: tensor<64x8xf32> {dist.role = "input"}, %u: tensor<64x8xf32> {dist.role = "input"}, %w: tensor<8x64xf32> {dist.name = "w", dist.role = "parameter"})
    -> (tensor<64x8xf32> {dist.role = "output"}, tensor<64x64xf32> {dist.name = "w", dist.role = "parameter"}) {
  %a = "onnx.MatMul"(%x, %w) : (tensor<64x8xf32>, tensor<8x64xf32>) -> tensor<64x64xf32>
  %b = "onnx.Tanh"(%a) : (tensor<64x64xf32>) -> tensor<64x64xf32>
  %h = "onnx.MatMul"(%b, %u) : (tensor<64x64xf32>, tensor<64x8xf32>) -> tensor<64x8xf32>
  %c = "onnx.MatMul"(%h, %w) : (tensor<64x8xf32>, tensor<8x64xf32>) -> tensor<64x64xf32>
  %d = "onnx.Sin"(%c) : (tensor<64x64xf32>) -> tensor<64x64xf32>
  %y = "onnx.MatMul"(%d, %u) : (tensor<64x64xf32>, tensor<64x8xf32>) -> tensor<64x8xf32>
  %e = "onnx.Mul"(%d, %c) : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  %f = "onnx.Mul"(%e, %b) : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  %g = "onnx.Mul"(%f, %a) : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  func.return %y, %g : tensor<64x8xf32>, tensor<64x64xf32>
}
