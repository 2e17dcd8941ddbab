// RUN: distir-opt %s --split-input-file -p shardcombine-annotate | filecheck %s
// What draws by positions is cut along every dim by cutting the positions: its shards draw what the whole draws there.

// CHECK: random.bernoulli %k at %r, %c probability 7.500000e-01 {dist.rule = #dist.rule<[], [S1], [S2] -> {S1: gather(0), S2: gather(1)}, found = exact>}
// CHECK: random.uniform %k at %r, %c {dist.rule = #dist.rule<[], [S1], [S2] -> {S1: gather(0), S2: gather(1)}, found = exact>}
func.func @main(%k: tensor<i64>, %r: tensor<4xi64>, %c: tensor<8xi64>) -> (tensor<4x8xi1>, tensor<4x8xf32>) {
  %0 = random.bernoulli %k at %r, %c probability 7.500000e-01 : (tensor<i64>, tensor<4xi64>, tensor<8xi64>) -> tensor<4x8xi1>
  %1 = random.uniform %k at %r, %c : (tensor<i64>, tensor<4xi64>, tensor<8xi64>) -> tensor<4x8xf32>
  func.return %0, %1 : tensor<4x8xi1>, tensor<4x8xf32>
}

// -----
// So they are where positions are constants, and where one vector gives those of several dims.

// CHECK: random.bernoulli %k at %r, %heads, %tokens, %tokens probability 7.500000e-01 {dist.rule = #dist.rule<[], [S1], [S2], [S3], [S4] -> {S1: gather(0), S2: gather(1), S3: gather(2), S4: gather(3)}, found = exact>}
func.func @main(%k: tensor<i64>, %r: tensor<4xi64>) -> tensor<4x2x3x3xi1> {
  %heads = onnx.Constant dense<[0, 1]> : tensor<2xi64>
  %tokens = onnx.Constant dense<[0, 1, 2]> : tensor<3xi64>
  %0 = random.bernoulli %k at %r, %heads, %tokens, %tokens probability 7.500000e-01 : (tensor<i64>, tensor<4xi64>, tensor<2xi64>, tensor<3xi64>, tensor<3xi64>) -> tensor<4x2x3x3xi1>
  func.return %0 : tensor<4x2x3x3xi1>
}

// -----
// A matrix times itself is a matrix times another, which may be cut otherwise.

// CHECK: "aten.mm"(%a, %a) {dist.rule = #dist.rule<[S1, S2], [S2, S3] -> {S1: gather(0), S2: reduce(sum), S3: gather(1)}
func.func @main(%a: tensor<6x6xf32>) -> tensor<6x6xf32> {
  %0 = "aten.mm"(%a, %a) : (tensor<6x6xf32>, tensor<6x6xf32>) -> tensor<6x6xf32>
  func.return %0 : tensor<6x6xf32>
}
