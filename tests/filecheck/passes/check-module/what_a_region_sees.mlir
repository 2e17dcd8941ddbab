// RUN: DISTIR_DIAGNOSTICS

// A nested region sees the values before its op, and only those.
func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {
  "test.op"() ({
    %b = dist.scale %a by 1/2 : tensor<4xf32>
    "test.termop"(%b, %c) : (tensor<4xf32>, tensor<4xf32>) -> ()
  }) : () -> ()
  %c = dist.scale %a by 1/2 : tensor<4xf32>
  func.return %c : tensor<4xf32>
}
// CHECK: operand 1 (%c) is used before its definition
