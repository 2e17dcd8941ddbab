// RUN: not distir-opt %s -p 'outline-repeats{minimum=0}' 2>&1 | filecheck %s

// CHECK: minimum: expected at least 1, got 0
func.func @main(%x: tensor<2x4xf32>) -> tensor<2x4xf32> {
  func.return %x : tensor<2x4xf32>
}
