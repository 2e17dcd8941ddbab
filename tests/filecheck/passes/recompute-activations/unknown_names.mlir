// RUN: distir-opt %s --verify-diagnostics -p 'recompute-activations{policy=Tank}' | filecheck %s

// A name that no module and no operation has is refused.
// CHECK: policy: nothing in the forward part is of a module or an operation 'Tank'
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
