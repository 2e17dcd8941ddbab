// RUN: distir-opt %s -p 'recompute-activations{policy=selective}' | filecheck %s

// A product of matrices takes too long to be repeated for its bytes; what is made of it elementwise does not.

// CHECK:      %a0, [[Y0:%.*]] = func.call @layer_forward(%x, %w0)
// CHECK-NEXT: [[A1:%.*]], [[Y1:%.*]] = func.call @layer_forward([[Y0]], %w1)
// CHECK-NEXT: [[G1:%.*]] = "onnx.Neg"([[Y1]])
// CHECK-NEXT: [[B1:%.*]] = func.call @layer_again([[A1]])
// CHECK-NEXT: func.call @back([[G1]], [[A1]], [[B1]], [[Y0]], %w1)
func.func @main(%x: tensor<512x512xf32> {dist.role = "input"}, %w0: tensor<512x512xf32> {dist.name = "w0", dist.role = "parameter"}, %w1: tensor<512x512xf32> {dist.name = "w1", dist.role = "parameter"})
    -> (tensor<512x512xf32> {dist.role = "output"}, tensor<512x512xf32> {dist.name = "w0", dist.role = "parameter"}, tensor<512x512xf32> {dist.name = "w1", dist.role = "parameter"}) {
  %a0, %b0, %y0 = func.call @layer(%x, %w0) : (tensor<512x512xf32>, tensor<512x512xf32>) -> (tensor<512x512xf32>, tensor<512x512xf32>, tensor<512x512xf32>)
  %a1, %b1, %y1 = func.call @layer(%y0, %w1) : (tensor<512x512xf32>, tensor<512x512xf32>) -> (tensor<512x512xf32>, tensor<512x512xf32>, tensor<512x512xf32>)
  %g1 = "onnx.Neg"(%y1) : (tensor<512x512xf32>) -> tensor<512x512xf32>
  %d1, %g0 = func.call @back(%g1, %a1, %b1, %y0, %w1) : (tensor<512x512xf32>, tensor<512x512xf32>, tensor<512x512xf32>, tensor<512x512xf32>, tensor<512x512xf32>) -> (tensor<512x512xf32>, tensor<512x512xf32>)
  %d0, %g = func.call @back(%g0, %a0, %b0, %x, %w0) : (tensor<512x512xf32>, tensor<512x512xf32>, tensor<512x512xf32>, tensor<512x512xf32>, tensor<512x512xf32>) -> (tensor<512x512xf32>, tensor<512x512xf32>)
  func.return %y1, %d0, %d1 : tensor<512x512xf32>, tensor<512x512xf32>, tensor<512x512xf32>
}
func.func private @layer(%x: tensor<512x512xf32>, %w: tensor<512x512xf32>) -> (tensor<512x512xf32>, tensor<512x512xf32>, tensor<512x512xf32>) {
  %a = "onnx.MatMul"(%x, %w) : (tensor<512x512xf32>, tensor<512x512xf32>) -> tensor<512x512xf32>
  %b = "onnx.Tanh"(%a) : (tensor<512x512xf32>) -> tensor<512x512xf32>
  %y = "onnx.Add"(%b, %x) : (tensor<512x512xf32>, tensor<512x512xf32>) -> tensor<512x512xf32>
  func.return %a, %b, %y : tensor<512x512xf32>, tensor<512x512xf32>, tensor<512x512xf32>
}
func.func private @back(%g: tensor<512x512xf32>, %a: tensor<512x512xf32>, %b: tensor<512x512xf32>, %x: tensor<512x512xf32>, %w: tensor<512x512xf32>) -> (tensor<512x512xf32>, tensor<512x512xf32>) {
  %0 = "onnx.Mul"(%g, %b) : (tensor<512x512xf32>, tensor<512x512xf32>) -> tensor<512x512xf32>
  %1 = "onnx.Mul"(%0, %a) : (tensor<512x512xf32>, tensor<512x512xf32>) -> tensor<512x512xf32>
  %2 = "onnx.MatMul"(%x, %1) : (tensor<512x512xf32>, tensor<512x512xf32>) -> tensor<512x512xf32>
  %3 = "onnx.MatMul"(%1, %w) : (tensor<512x512xf32>, tensor<512x512xf32>) -> tensor<512x512xf32>
  func.return %2, %3 : tensor<512x512xf32>, tensor<512x512xf32>
}
