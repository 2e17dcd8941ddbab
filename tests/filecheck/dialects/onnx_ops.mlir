// RUN: DISTIR_ROUNDTRIP

func.func @operators(%x: tensor<2x3xf32>, %w: tensor<3x4xf32>, %on: tensor<2x3xf32, #dist.on<1>>) {
  // An absent optional operand is `none`; properties are accepted in the attribute dictionary.
  %none = "onnx.NoValue"() {value} : () -> none
  %0 = "onnx.Gemm"(%x, %w, %none) {alpha = 2.0 : f32, transA = 0 : si64, note = "kept"} : (tensor<2x3xf32>, tensor<3x4xf32>, none) -> tensor<2x4xf32>
  // A cast's target is a type, a transpose's permutation an array.
  %1 = "onnx.Cast"(%0) <{to = f16}> : (tensor<2x4xf32>) -> tensor<2x4xf16>
  %2 = "onnx.Transpose"(%1) <{perm = [1, 0]}> : (tensor<2x4xf16>) -> tensor<4x2xf16>
  // Placed tensors are tensors.
  %3 = "onnx.Relu"(%on) : (tensor<2x3xf32, #dist.on<1>>) -> tensor<2x3xf32, #dist.on<1>>
  // Graphs are regions.
  %condition = onnx.Constant dense<true> : tensor<i1>
  %4 = "onnx.If"(%condition) ({
    onnx.Yield %x : tensor<2x3xf32>
  }, {
    %5 = "onnx.Neg"(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>
    onnx.Yield %5 : tensor<2x3xf32>
  }) : (tensor<i1>) -> tensor<2x3xf32>
  %6 = "onnx.SequenceConstruct"(%x, %4) : (tensor<2x3xf32>, tensor<2x3xf32>) -> !onnx.Seq<tensor<2x3xf32>>
  func.return
}

// CHECK:      %none = "onnx.NoValue"() <{value}> : () -> none
// CHECK-NEXT: %0 = "onnx.Gemm"(%x, %w, %none) <{alpha = 2.000000e+00 : f32, transA = 0 : si64}> {note = "kept"} : (tensor<2x3xf32>, tensor<3x4xf32>, none) -> tensor<2x4xf32>
// CHECK-NEXT: %1 = "onnx.Cast"(%0) <{to = f16}> : (tensor<2x4xf32>) -> tensor<2x4xf16>
// CHECK-NEXT: %2 = "onnx.Transpose"(%1) <{perm = [1 : i64, 0 : i64]}> : (tensor<2x4xf16>) -> tensor<4x2xf16>
// CHECK-NEXT: %3 = "onnx.Relu"(%on) : (tensor<2x3xf32, #dist.on<1>>) -> tensor<2x3xf32, #dist.on<1>>
// CHECK-NEXT: %condition = onnx.Constant dense<true> : tensor<i1>
// CHECK-NEXT: %4 = "onnx.If"(%condition) ({
// CHECK-NEXT:   onnx.Yield %x : tensor<2x3xf32>
// CHECK-NEXT: }, {
// CHECK-NEXT:   %5 = "onnx.Neg"(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>
// CHECK-NEXT:   onnx.Yield %5 : tensor<2x3xf32>
// CHECK-NEXT: }) : (tensor<i1>) -> tensor<2x3xf32>
// CHECK-NEXT: %6 = "onnx.SequenceConstruct"(%x, %4) : (tensor<2x3xf32>, tensor<2x3xf32>) -> !onnx.Seq<tensor<2x3xf32>>
