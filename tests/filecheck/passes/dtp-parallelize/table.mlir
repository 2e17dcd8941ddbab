// RUN: distir-opt %s -p 'dtp-parallelize{tp=2}' | filecheck %s

// A table of 131 MB is cut, whatever its lookup then communicates: going over the half of it that a cut spares takes longer.
func.func @main(%i: tensor<2x16xi64> {dist.name = "i", dist.role = "input"},
                %table: tensor<32000x1024xf32> {dist.name = "table", dist.role = "parameter"},
                %w: tensor<1024x1024xf32> {dist.name = "w", dist.role = "parameter"})
    -> (tensor<2x16x1024xf32> {dist.name = "y", dist.role = "output"}) {
  %x = "onnx.Gather"(%table, %i) <{axis = 0 : si64}> : (tensor<32000x1024xf32>, tensor<2x16xi64>) -> tensor<2x16x1024xf32>
  %r = "onnx.Softmax"(%x) <{axis = 2 : si64}> : (tensor<2x16x1024xf32>) -> tensor<2x16x1024xf32>
  %y = "onnx.MatMul"(%r, %w) : (tensor<2x16x1024xf32>, tensor<1024x1024xf32>) -> tensor<2x16x1024xf32>
  func.return %y : tensor<2x16x1024xf32>
}

// CHECK:      builtin.module
// CHECK:      %table: tensor<32000x512xf32, #dist.on<0>> {dist.name = "table"
// CHECK-SAME: %table_1: tensor<32000x512xf32, #dist.on<1>> {dist.name = "table"
