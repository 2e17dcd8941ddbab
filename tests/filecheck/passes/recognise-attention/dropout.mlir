// RUN: distir-opt %s -p recognise-attention | filecheck %s

// The operation draws by the key and the positions by which the mask was drawn, of which nothing is left.

// CHECK-NOT: random.bernoulli
// CHECK: [[o:%\S+]], {{%\S+}} = "attention.forward"(%q, {{%\S+}}, %v, %key, %heads, %rows, %keys) <{scale = 1.000000e+00 : f64, dropout = 2.500000e-01 : f64}>
// CHECK: func.return [[o]]
func.func @main(%q: tensor<3x5x4xf32>, %kt: tensor<3x4x7xf32>, %v: tensor<3x7x6xf32>, %key: tensor<i64>, %heads: tensor<3xi64>, %rows: tensor<5xi64>, %keys: tensor<7xi64>) -> tensor<3x5x6xf32> {
  %s = "aten.bmm"(%q, %kt) : (tensor<3x5x4xf32>, tensor<3x4x7xf32>) -> tensor<3x5x7xf32>
  %p = "aten._softmax"(%s) <{dim = 2 : i64, half_to_float = false}> : (tensor<3x5x7xf32>) -> tensor<3x5x7xf32>
  %m = random.bernoulli %key at %heads, %rows, %keys probability 0.75 : (tensor<i64>, tensor<3xi64>, tensor<5xi64>, tensor<7xi64>) -> tensor<3x5x7xi1>
  %d = "aten.mul.Tensor"(%p, %m) : (tensor<3x5x7xf32>, tensor<3x5x7xi1>) -> tensor<3x5x7xf32>
  %w = "aten.div.Scalar"(%d) <{other = 0.75 : f64}> : (tensor<3x5x7xf32>) -> tensor<3x5x7xf32>
  %o = "aten.bmm"(%w, %v) : (tensor<3x5x7xf32>, tensor<3x7x6xf32>) -> tensor<3x5x6xf32>
  func.return %o : tensor<3x5x6xf32>
}
