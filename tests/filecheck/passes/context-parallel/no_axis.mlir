// RUN: not distir-opt %s -p 'context-parallel{axis=""}' 2>&1 | filecheck %s

// CHECK: axis: expected the name of an axis such as "cp", got ""
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  func.return %x : tensor<4xf32>
}
