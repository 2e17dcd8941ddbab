// RUN: DISTIR_DIAGNOSTICS

// A value is defined before it is used.
func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {
  %c = dist.scale %b by 1/2 : tensor<4xf32>
  %b = dist.scale %a by 1/2 : tensor<4xf32>
  func.return %c : tensor<4xf32>
}
// CHECK: operand 0 (%b) is used before its definition
