// RUN: DISTIR_DIAGNOSTICS

%x, %y = "test.op"() : () -> (tensor<2x3xf32>, tensor<3x4xf64>)
%0 = "onnx.MatMul"(%x, %y) : (tensor<2x3xf32>, tensor<3x4xf64>) -> tensor<2x4xf32>
// CHECK: 'B' has type tensor(double), but type variable T is already tensor(float)

// -----

%x = "test.op"() : () -> tensor<2x3xf32>
%0 = "onnx.Concat"(%x, %x) : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<4x3xf32>
// CHECK: property 'axis' expected in operation 'onnx.Concat'

// -----

%x = "test.op"() : () -> tensor<2x3xi64>
%0 = "onnx.Relu"(%x) {alpha = 1 : si64} : (tensor<2x3xi64>) -> tensor<2x3xf32>
// CHECK: type variable T is already tensor(int64)

// -----

%0 = onnx.Constant dense<[1, 2]> : tensor<3xi64>
// CHECK: literal does not fit tensor<3xi64>: it has shape [2]

// -----

%0 = "onnx.Constant"() <{value = #onnx.tensor<dense<1> : tensor<2xi64>>}> : () -> tensor<3xi64>
// CHECK: expected a result of type tensor<2xi64>, got tensor<3xi64>
