// RUN: rm -rf %t
// RUN: env DISTIR_CACHE_DIR=%t distir-opt %s --split-input-file -p shardcombine-annotate | filecheck %s
// RUN: env DISTIR_CACHE_DIR=%t distir-opt %s --split-input-file -p shardcombine-annotate | filecheck %s

// The operators of a GPT-2 layer. The second run reads the rules that the first has kept.
// CHECK-LABEL: @gpt2
func.func @gpt2(%ids: tensor<2x128xi64>, %wte: tensor<50257x768xf32>, %w: tensor<768x2304xf32>, %b: tensor<2304xf32>,
                %g: tensor<768xf32>, %c: tensor<f32>, %mask: tensor<1x1x128x128xi1>) -> tensor<256x768xf32> {
  // The vocabulary is cut with an offset: a row of another shard counts as zero.
  // CHECK: onnx.Gather
  // CHECK-SAME: #dist.rule<[S4, S1], [S2, S3] -> {S1: gather(2), S2: gather(0), S3: gather(1), S4: reduce(sum)}, partial = [sum: 0 -> 0, max: 0 -> 0, min: 0 -> 0], offset = S4
  %x = "onnx.Gather"(%wte, %ids) {axis = 0 : si64} : (tensor<50257x768xf32>, tensor<2x128xi64>) -> tensor<2x128x768xf32>

  // CHECK: onnx.LayerNormalization
  // CHECK-SAME: #dist.rule<[S1, S2, _], [_], [_] -> {S1: [gather(0), identity, identity], S2: [gather(1), identity, identity]}
  %n, %mean, %deviation = "onnx.LayerNormalization"(%x, %g, %g) {axis = -1 : si64}
      : (tensor<2x128x768xf32>, tensor<768xf32>, tensor<768xf32>) -> (tensor<2x128x768xf32>, none, none)

  // CHECK: onnx.ReduceMean
  // CHECK-SAME: #dist.rule<[S1, S2, S3], [_] -> {S1: gather(0), S2: gather(1), S3: reduce(mean)}, partial = [sum: 0 -> 0], found = exact>
  %axis = onnx.Constant dense<[2]> : tensor<1xi64>
  %average = "onnx.ReduceMean"(%x, %axis) : (tensor<2x128x768xf32>, tensor<1xi64>) -> tensor<2x128x1xf32>

  // The batch is outermost when it merges with the sequence; the sequence is cut within every sample.
  // CHECK: onnx.Reshape
  // CHECK-SAME: #dist.rule<[S1, S2, S3], [_] -> {S1: gather(0), S2: gather(0, outer = S1), S3: gather(1)}, sizes = {shape[1]: S3}
  %rows = onnx.Constant dense<[-1, 768]> : tensor<2xi64>
  %flat = "onnx.Reshape"(%n, %rows) : (tensor<2x128x768xf32>, tensor<2xi64>) -> tensor<256x768xf32>

  // A bias joins a split contraction as a partial sum.
  // CHECK: onnx.Gemm
  // CHECK-SAME: #dist.rule<[S1, S2], [S2, S3], [S3] -> {S1: gather(0), S2: reduce(sum), S3: gather(1)}, partial = [sum: (0, 2) -> 0, sum: (1, 2) -> 0, sum: S2, 2 -> 0], found = exact>
  %qkv = "onnx.Gemm"(%flat, %w, %b) {alpha = 1.0 : f32, beta = 1.0 : f32, transA = 0 : si64, transB = 0 : si64}
      : (tensor<256x768xf32>, tensor<768x2304xf32>, tensor<2304xf32>) -> tensor<256x2304xf32>

  // CHECK: onnx.Reshape
  // CHECK-SAME: #dist.rule<[S1 * S2, S3], [_] -> {S1: gather(0), S2: gather(1), S3: gather(2)}, sizes = {shape[0]: S1, shape[1]: S2, shape[2]: S3}
  %samples = onnx.Constant dense<[2, 128, 2304]> : tensor<3xi64>
  %qkv3 = "onnx.Reshape"(%qkv, %samples) : (tensor<256x2304xf32>, tensor<3xi64>) -> tensor<2x128x2304xf32>

  // Queries, keys and values are cut each for itself.
  // CHECK: onnx.Split
  // CHECK-SAME: #dist.rule<[S1, S2, S3(pieces = [1, 1, 1])], [_] -> {S1: [gather(0), gather(0), gather(0)], S2: [gather(1), gather(1), gather(1)], S3: [gather(2), gather(2), gather(2)]}, sizes = {split[0]: S3, split[1]: S3, split[2]: S3}
  %thirds = onnx.Constant dense<[768, 768, 768]> : tensor<3xi64>
  %q, %k, %v = "onnx.Split"(%qkv3, %thirds) {axis = 2 : si64} : (tensor<2x128x2304xf32>, tensor<3xi64>)
      -> (tensor<2x128x768xf32>, tensor<2x128x768xf32>, tensor<2x128x768xf32>)

  // The width is cut by heads, the outer part of it, or within every head.
  // CHECK: onnx.Reshape
  // CHECK-SAME: #dist.rule<[S1, S2, S3 * S4], [_] -> {S1: gather(0), S2: gather(1), S3: gather(2), S4: gather(3)}, sizes = {shape[0]: S1, shape[1]: S2, shape[2]: S3, shape[3]: S4}
  %heads = onnx.Constant dense<[2, 128, 12, 64]> : tensor<4xi64>
  %q4 = "onnx.Reshape"(%q, %heads) : (tensor<2x128x768xf32>, tensor<4xi64>) -> tensor<2x128x12x64xf32>
  %k4 = "onnx.Reshape"(%k, %heads) : (tensor<2x128x768xf32>, tensor<4xi64>) -> tensor<2x128x12x64xf32>

  // CHECK: onnx.Transpose
  // CHECK-SAME: #dist.rule<[S1, S2, S3, S4] -> {S1: gather(0), S2: gather(2), S3: gather(1), S4: gather(3)}
  %qt = "onnx.Transpose"(%q4) {perm = [0, 2, 1, 3]} : (tensor<2x128x12x64xf32>) -> tensor<2x12x128x64xf32>
  %kt = "onnx.Transpose"(%k4) {perm = [0, 2, 3, 1]} : (tensor<2x128x12x64xf32>) -> tensor<2x12x64x128xf32>

  // CHECK: onnx.MatMul
  // CHECK-SAME: #dist.rule<[S1, S2, S3, S4], [S1, S2, S4, S5] -> {S1: gather(0), S2: gather(1), S3: gather(2), S4: reduce(sum), S5: gather(3)}, partial = [sum: 0 -> 0, sum: 1 -> 0], found = exact>
  %scores = "onnx.MatMul"(%qt, %kt) : (tensor<2x12x128x64xf32>, tensor<2x12x64x128xf32>) -> tensor<2x12x128x128xf32>

  // CHECK: onnx.Where
  // CHECK-SAME: #dist.rule<[_, _, S1, S2], [S3, S4, S1, S2], [] -> {S1: gather(2), S2: gather(3), S3: gather(0), S4: gather(1)}, partial = [sum: (1, 2) -> 0
  %masked = "onnx.Where"(%mask, %scores, %c) : (tensor<1x1x128x128xi1>, tensor<2x12x128x128xf32>, tensor<f32>) -> tensor<2x12x128x128xf32>

  // CHECK: onnx.Softmax
  // CHECK-SAME: #dist.rule<[S1, S2, S3, _] -> {S1: gather(0), S2: gather(1), S3: gather(2)}, found = exact>
  %weights = "onnx.Softmax"(%masked) {axis = -1 : si64} : (tensor<2x12x128x128xf32>) -> tensor<2x12x128x128xf32>

  // CHECK: onnx.Tanh
  // CHECK-SAME: #dist.rule<[S1, S2, S3] -> {S1: gather(0), S2: gather(1), S3: gather(2)}, found = exact>
  %t = "onnx.Tanh"(%x) : (tensor<2x128x768xf32>) -> tensor<2x128x768xf32>

  // A value used twice is cut, and partial, in both places.
  // CHECK: onnx.Add
  // CHECK-SAME: #dist.rule<[S1, S2, S3], [S1, S2, S3] -> {S1: gather(0), S2: gather(1), S3: gather(2)}, partial = [sum: (0, 1) -> 0], found = exact>
  %twice = "onnx.Add"(%x, %x) : (tensor<2x128x768xf32>, tensor<2x128x768xf32>) -> tensor<2x128x768xf32>

  // Only size entries carry what was not there before.
  // CHECK: onnx.Expand
  // CHECK-SAME: #dist.rule<[S1], [_] -> {S1: gather(1), S2: gather(0)}, sizes = {shape[1]: S1, shape[0]: S2}
  %both = onnx.Constant dense<[256, 768]> : tensor<2xi64>
  %spread = "onnx.Expand"(%g, %both) : (tensor<768xf32>, tensor<2xi64>) -> tensor<256x768xf32>

  // A narrowing cast needs machine numbers, and does not commute with sums.
  // CHECK: onnx.Cast
  // CHECK-SAME: #dist.rule<[S1, S2] -> {S1: gather(0), S2: gather(1)}, found = probed>
  %half = "onnx.Cast"(%flat) {to = f16} : (tensor<256x768xf32>) -> tensor<256x768xf16>

  func.return %flat : tensor<256x768xf32>
}

// -----

// The gradient and optimizer operators of a training step, their inference knowing no more than types of operands.
// CHECK-LABEL: @step
func.func @step(%x: tensor<128x64xf32>, %w: tensor<64x64xf32>, %dy: tensor<128x64xf32>, %n: tensor<f32>) -> tensor<64x64xf32> {
  // CHECK: grad.loss
  // CHECK-SAME: #dist.rule<[S1, S2], [S1, S2], [] -> {S1: gather(0), S2: gather(1)}, found = exact>
  %loss = grad.loss %x, %dy, %n : (tensor<128x64xf32>, tensor<128x64xf32>, tensor<f32>) -> tensor<128x64xf32>

  // CHECK: grad.loss_grad
  // CHECK-SAME: #dist.rule<[S1, S2], [S1, S2], [] -> {S1: gather(0), S2: gather(1)}, partial = [sum: (0, 1) -> 0], found = exact>
  %dz = grad.loss_grad %x, %dy, %n : (tensor<128x64xf32>, tensor<128x64xf32>, tensor<f32>) -> tensor<128x64xf32>

  // CHECK: grad.relu_grad
  // CHECK-SAME: #dist.rule<[S1, S2], [S1, S2] -> {S1: gather(0), S2: gather(1)}, partial = [sum: 1 -> 0
  %dr = grad.relu_grad %x, %dz : (tensor<128x64xf32>, tensor<128x64xf32>) -> tensor<128x64xf32>

  // Data parallelism: the batch is whole in dx and a partial sum in dw.
  // CHECK: grad.matmul_grad
  // CHECK-SAME: #dist.rule<[S1, S2], [S2, S3], [S1, S3] -> {S1: [gather(0), reduce(sum)], S2: [gather(1), gather(0)], S3: [reduce(sum), gather(1)]}, partial = [sum: 0 -> 1, sum: 1 -> 0, sum: 2 -> (0, 1), sum: (0, 1) -> (0, 1)], found = exact>
  %dx, %dw = grad.matmul_grad %x, %w, %dr : (tensor<128x64xf32>, tensor<64x64xf32>, tensor<128x64xf32>) -> (tensor<128x64xf32>, tensor<64x64xf32>)

  // CHECK: grad.sgd
  // CHECK-SAME: #dist.rule<[S1, S2], [S1, S2] -> {S1: gather(0), S2: gather(1)}, partial = [sum: (0, 1) -> 0], found = exact>
  %new = grad.sgd %w, %dw learning_rate 1.0e-2 : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  func.return %new : tensor<64x64xf32>
}
