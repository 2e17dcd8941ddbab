// RUN: distir-opt %s -p onnx-fold-shapes | filecheck %s

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
// CHECK-NEXT:   [[V1:%.*]] = onnx.Constant dense<[-1, 768]> : tensor<2xi64>
// CHECK-NEXT:   [[V2:%.*]] = "onnx.Reshape"(%0, [[V1]]) : (tensor<256x8x768xf32>, tensor<2xi64>) -> tensor<2048x768xf32>
// CHECK-NEXT:   [[NONE:%.*]] = "onnx.NoValue"() <{value}> : () -> none
// CHECK-NEXT:   [[V3:%.*]] = "onnx.Gemm"([[V2]], %w, [[NONE]]) {dist.note = "kept"} : (tensor<2048x768xf32>, tensor<768x3072xf32>, none) -> tensor<2048x3072xf32>
// CHECK-NEXT:   func.return [[V3]] : tensor<2048x3072xf32>
