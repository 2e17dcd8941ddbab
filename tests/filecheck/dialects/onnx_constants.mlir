// RUN: DISTIR_ROUNDTRIP

// Readable when each decimal reads back to the same bits; bytes otherwise.

%integers = onnx.Constant dense<[[1, 2], [3, -4]]> : tensor<2x2xi64>
// CHECK: %integers = onnx.Constant dense<[[1, 2], [3, -4]]> : tensor<2x2xi64>

%splat = onnx.Constant dense<0.1> : tensor<1024x1024xf32>
// CHECK-NEXT: %splat = onnx.Constant dense<0.1> : tensor<1024x1024xf32>

%floats = onnx.Constant dense<[-0.0, 1.0e-5, -236184320.0]> : tensor<3xf32>
// CHECK-NEXT: %floats = onnx.Constant dense<[-0.0, 1.0e-05, -2.3618432e+08]> : tensor<3xf32>

// A hexadecimal element is a bit pattern, as in MLIR: minus infinity.
%mask = onnx.Constant dense<[0.0, 0xFF800000]> : tensor<2xf32>
// CHECK-NEXT: %mask = onnx.Constant dense<"0x00000000000080FF"> : tensor<2xf32>

%nothing = onnx.Constant dense<> : tensor<0xi64>
// CHECK-NEXT: %nothing = onnx.Constant dense<> : tensor<0xi64>

%flags = onnx.Constant dense<[true, false]> : tensor<2xi1>
// CHECK-NEXT: %flags = onnx.Constant dense<[true, false]> : tensor<2xi1>

%strings = onnx.Constant dense<["a", "b\22"]> : tensor<2x!onnx.String>
// CHECK-NEXT: %strings = onnx.Constant dense<["a", "b\22"]> : tensor<2x!onnx.String>

// Where a constant lives is not part of its value.
%placed = onnx.Constant {note = 1 : i64} dense<7> : tensor<i32, #dist.on<3>>
// CHECK-NEXT: %placed = onnx.Constant {note = 1 : i64} dense<7> : tensor<i32, #dist.on<3>>
