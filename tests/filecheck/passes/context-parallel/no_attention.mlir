// RUN: not distir-opt %s -p context-parallel 2>&1 | filecheck %s

// CHECK: context-parallel: the program has no attention whose queries can be cut along their sequence
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  func.return %x : tensor<4xf32>
}
