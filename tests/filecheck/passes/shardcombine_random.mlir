// RUN: distir-opt %s -p shardcombine-annotate | filecheck %s
// What draws by positions is cut along every dim by cutting the positions: its shards draw what the whole draws there.

// CHECK: random.bernoulli %k at %r, %c probability 7.500000e-01 {dist.rule = #dist.rule<[], [S1], [S2] -> {S1: gather(0), S2: gather(1)}, found = exact>}
// CHECK: random.uniform %k at %r, %c {dist.rule = #dist.rule<[], [S1], [S2] -> {S1: gather(0), S2: gather(1)}, found = exact>}
func.func @main(%k: tensor<i64>, %r: tensor<4xi64>, %c: tensor<8xi64>) -> (tensor<4x8xi1>, tensor<4x8xf32>) {
  %0 = random.bernoulli %k at %r, %c probability 7.500000e-01 : (tensor<i64>, tensor<4xi64>, tensor<8xi64>) -> tensor<4x8xi1>
  %1 = random.uniform %k at %r, %c : (tensor<i64>, tensor<4xi64>, tensor<8xi64>) -> tensor<4x8xf32>
  func.return %0, %1 : tensor<4x8xi1>, tensor<4x8xf32>
}
