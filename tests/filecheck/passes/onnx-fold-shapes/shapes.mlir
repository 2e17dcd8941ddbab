// RUN: distir-opt %s --split-input-file -p onnx-fold-shapes | filecheck %s

// DistIR's Figure 4: the target of the reshape comes from the shape of its own operand.
func.func @main(%211: tensor<256x8x768xf32> {dist.name = "x", dist.role = "input"},
                %w: tensor<768x3072xf32> {dist.name = "w", dist.role = "parameter"})
    -> (tensor<?x?xf32> {dist.name = "y", dist.role = "output"}) {
  %3114 = onnx.Constant dense<[-1]> : tensor<1xi64>
  %218 = "onnx.Shape"(%211) : (tensor<256x8x768xf32>) -> tensor<3xi64>
  %219 = onnx.Constant dense<2> : tensor<i64>
  %220 = "onnx.Gather"(%218, %219) <{axis = 0 : si64}> : (tensor<3xi64>, tensor<i64>) -> tensor<i64>
  %axes = onnx.Constant dense<[0]> : tensor<1xi64>
  %223 = "onnx.Unsqueeze"(%220, %axes) : (tensor<i64>, tensor<1xi64>) -> tensor<1xi64>
  %224 = "onnx.Concat"(%3114, %223) <{axis = 0 : si64}> : (tensor<1xi64>, tensor<1xi64>) -> tensor<2xi64>
  %225 = "onnx.Reshape"(%211, %224) : (tensor<256x8x768xf32>, tensor<2xi64>) -> tensor<?x?xf32>
  %none = "onnx.NoValue"() <{value}> : () -> none
  %226 = "onnx.Gemm"(%225, %w, %none) {dist.note = "kept"} : (tensor<?x?xf32>, tensor<768x3072xf32>, none) -> tensor<?x?xf32>
  func.return %226 : tensor<?x?xf32>
}

// CHECK:      func.func @main(%0: tensor<256x8x768xf32> {dist.name = "x", dist.role = "input"}, %w: tensor<768x3072xf32> {dist.name = "w", dist.role = "parameter"}) -> (tensor<2048x3072xf32> {dist.name = "y", dist.role = "output"}) {
// CHECK-NEXT:   %1 = onnx.Constant dense<[-1, 768]> : tensor<2xi64>
// CHECK-NEXT:   %2 = "onnx.Reshape"(%0, %1) : (tensor<256x8x768xf32>, tensor<2xi64>) -> tensor<2048x768xf32>
// CHECK-NEXT:   %none = "onnx.NoValue"() <{value}> : () -> none
// CHECK-NEXT:   %3 = "onnx.Gemm"(%2, %w, %none) {dist.note = "kept"} : (tensor<2048x768xf32>, tensor<768x3072xf32>, none) -> tensor<2048x3072xf32>
// CHECK-NEXT:   func.return %3 : tensor<2048x3072xf32>

// -----

// A known condition selects its branch, and what the branch computes is folded in turn.
func.func @main(%x: tensor<4x8xf32>) -> tensor<?x?xf32> {
  %shape = "onnx.Shape"(%x) : (tensor<4x8xf32>) -> tensor<2xi64>
  %limit = onnx.Constant dense<[4, 8]> : tensor<2xi64>
  %equal = "onnx.Equal"(%shape, %limit) : (tensor<2xi64>, tensor<2xi64>) -> tensor<2xi1>
  %axis = onnx.Constant dense<0> : tensor<i64>
  %condition = "onnx.Gather"(%equal, %axis) : (tensor<2xi1>, tensor<i64>) -> tensor<i1>
  %y = "onnx.If"(%condition) ({
    onnx.Yield %x : tensor<4x8xf32>
  }, {
    %t = "onnx.Transpose"(%x) <{perm = [1, 0]}> : (tensor<4x8xf32>) -> tensor<?x?xf32>
    onnx.Yield %t : tensor<?x?xf32>
  }) : (tensor<i1>) -> tensor<?x?xf32>
  func.return %y : tensor<?x?xf32>
}

// CHECK:      func.func @main(%x: tensor<4x8xf32>) -> tensor<8x4xf32> {
// CHECK-NEXT:   %t = "onnx.Transpose"(%x) <{perm = [1 : i64, 0 : i64]}> : (tensor<4x8xf32>) -> tensor<8x4xf32>
// CHECK-NEXT:   func.return %t : tensor<8x4xf32>

// -----

// Random numbers are not folded; a large known result stays the operation that makes it.
func.func @main() -> (tensor<2xf32>, tensor<1000x1000xf32>) {
  %draw = "onnx.RandomUniform"() <{shape = [2]}> : () -> tensor<2xf32>
  %shape = onnx.Constant dense<[1000, 1000]> : tensor<2xi64>
  %zeros = "onnx.ConstantOfShape"(%shape) : (tensor<2xi64>) -> tensor<1000x1000xf32>
  func.return %draw, %zeros : tensor<2xf32>, tensor<1000x1000xf32>
}

// CHECK:      %draw = "onnx.RandomUniform"()
// CHECK:      %zeros = "onnx.ConstantOfShape"(%shape)

// -----

// Functions are folded by what holds for all their calls.
func.func @main(%x: tensor<4x8xf32>, %y: tensor<4x8xf32>) -> (tensor<?x?xf32>, tensor<?x?xf32>) {
  %0 = func.call @flat(%x) : (tensor<4x8xf32>) -> tensor<?x?xf32>
  %1 = func.call @flat(%y) : (tensor<4x8xf32>) -> tensor<?x?xf32>
  func.return %0, %1 : tensor<?x?xf32>, tensor<?x?xf32>
}
func.func @flat(%x: tensor<4x8xf32>) -> tensor<?x?xf32> {
  %shape = "onnx.Shape"(%x) : (tensor<4x8xf32>) -> tensor<2xi64>
  %0 = "onnx.Reshape"(%x, %shape) : (tensor<4x8xf32>, tensor<2xi64>) -> tensor<?x?xf32>
  func.return %0 : tensor<?x?xf32>
}

// CHECK:      %0 = func.call @flat(%x) : (tensor<4x8xf32>) -> tensor<4x8xf32>
// CHECK:      func.func @flat(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
// CHECK-NEXT:   %shape = onnx.Constant dense<[4, 8]> : tensor<2xi64>
