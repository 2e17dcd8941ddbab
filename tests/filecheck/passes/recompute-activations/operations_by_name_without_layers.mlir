// RUN: distir-opt %s -p 'recompute-activations{policy=Tanh}' | filecheck %s

// Only the named operation is repeated; what it is made of is kept.

// CHECK:      [[A:%.*]] = "onnx.MatMul"(%x, %w)
// CHECK-NEXT: "onnx.Tanh"([[A]])
// CHECK:      [[B:%.*]] = "onnx.Tanh"([[A]])
// CHECK-NEXT: "onnx.Mul"({{.*}}, [[B]])
// CHECK-NOT:  "onnx.Sin"{{.*}}"onnx.Sin"
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
