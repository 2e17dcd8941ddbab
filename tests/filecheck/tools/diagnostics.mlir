// Comments say where errors are expected; each is met by an error there, and each error by a comment.
// RUN: distir-opt %s --split-input-file --verify-diagnostics

// expected-error @+2 {{no function @f in the module}}
func.func @main() {
  dist.call @f() on [0] : () -> ()
  func.return
}

// -----

func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @below {{operand 0 (%y) is used before its definition}}
  %z = "onnx.Relu"(%y) : (tensor<4xf32>) -> tensor<4xf32>
  %y = "onnx.Relu"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  func.return %z : tensor<4xf32>
}

// -----

func.func @main() {
  "onnx.NoSuch"() : () -> ()
  // expected-error-re @above {{Operation onnx.{{[A-Z]}}}}
  func.return
}
