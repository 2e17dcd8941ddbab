// RUN: distir-opt %s -p 'onnx-fold-shapes{shape="x=8,16"}' | filecheck %s

// Binding a named dimension binds it on every input that has it.
func.func @main(%x: tensor<?x16xf32> {dist.name = "x", dist.role = "input", onnx.dim_params = "0:batch"},
                %y: tensor<?x1xf32> {dist.name = "y", dist.role = "input", onnx.dim_params = "0:batch"})
    -> tensor<?x16xf32> {
  %0 = "onnx.Add"(%x, %y) : (tensor<?x16xf32>, tensor<?x1xf32>) -> tensor<?x16xf32>
  func.return %0 : tensor<?x16xf32>
}

// CHECK:      func.func @main(%x: tensor<8x16xf32> {dist.name = "x", dist.role = "input"}, %y: tensor<8x1xf32> {dist.name = "y", dist.role = "input"}) -> tensor<8x16xf32> {
// CHECK-NEXT:   %0 = "onnx.Add"(%x, %y) : (tensor<8x16xf32>, tensor<8x1xf32>) -> tensor<8x16xf32>
