// RUN: distir-opt %s -p shardcombine-annotate | filecheck %s

// Rows and columns of convolutions and pooling: shards overlap, and rows that feel that a shard ends are discarded.
func.func @main(%x: tensor<2x3x16x12xf32>, %w: tensor<4x3x3x3xf32>, %b: tensor<4xf32>, %u: tensor<2x4x15x12xf32>, %v: tensor<5x4x3x2xf32>) -> (tensor<2x4x8x6xf32>, tensor<2x5x11x11xf32>) {
  %none = "onnx.NoValue"() <{value}> : () -> none
  // CHECK: "onnx.Conv"{{.*}}[S1, S2, S4(halo = 1), S5(halo = 1)], [S3, S2, _, _], [S3] -> {S1: gather(0), S2: reduce(sum), S3: gather(1), S4: gather(2, halo = -1), S5: gather(3, halo = -1)}
  %h = "onnx.Conv"(%x, %w, %b) <{pads = [1 : si64, 1 : si64, 1 : si64, 1 : si64]}> : (tensor<2x3x16x12xf32>, tensor<4x3x3x3xf32>, tensor<4xf32>) -> tensor<2x4x16x12xf32>
  // CHECK: "onnx.MaxPool"{{.*}}[S1, S2, S3(halo = 2, stride = 2), S4(halo = 2, stride = 2)] -> {S1: [gather(0), identity], S2: [gather(1), identity], S3: [gather(2, halo = -1), identity], S4: [gather(3, halo = -1), identity]}
  %p, %i = "onnx.MaxPool"(%h) <{kernel_shape = [3 : si64, 3 : si64], pads = [1 : si64, 1 : si64, 1 : si64, 1 : si64], strides = [2 : si64, 2 : si64]}> : (tensor<2x4x16x12xf32>) -> (tensor<2x4x8x6xf32>, none)
  // Dilated by two along the rows and without padding.
  // CHECK: "onnx.Conv"{{.*}}[S1, S2, S4(halo = [0, 4]), S5(halo = [0, 1])], [S3, S2, _, _], [] -> {S1: gather(0), S2: reduce(sum), S3: gather(1), S4: gather(2), S5: gather(3)}
  %z = "onnx.Conv"(%u, %v, %none) <{dilations = [2 : si64, 1 : si64], pads = [0 : si64, 0 : si64, 0 : si64, 0 : si64]}> : (tensor<2x4x15x12xf32>, tensor<5x4x3x2xf32>, none) -> tensor<2x5x11x11xf32>
  func.return %p, %z : tensor<2x4x8x6xf32>, tensor<2x5x11x11xf32>
}
