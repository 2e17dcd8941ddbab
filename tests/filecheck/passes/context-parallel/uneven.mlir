// RUN: not distir-opt %s -p 'context-parallel{size=4}' 2>&1 | filecheck %s

// CHECK: attention.forward of 6 tokens: 4 devices of axis cp do not divide them
func.func @main(%x: tensor<6x8xf32>) -> tensor<6x8xf32> {
  %o, %s = "attention.forward"(%x, %x, %x) <{scale = 0.5 : f64}> : (tensor<6x8xf32>, tensor<6x8xf32>, tensor<6x8xf32>) -> (tensor<6x8xf32>, tensor<6xf32>)
  func.return %o : tensor<6x8xf32>
}
