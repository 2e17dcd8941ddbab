// RUN: distir-opt %s --split-input-file -p apply-sharding | filecheck %s

// Megatron's fused QKV: the weight is cut in pieces [4, 4, 4], so that each of the three parts of the product is cut.
dist.mesh @mesh = <["tp" = 2]>
func.func @main(%x: tensor<4x8xf32>, %w: tensor<8x12xf32>) -> (tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>) {
  %h = "onnx.MatMul"(%x, %w) {dist.rule = #dist.rule<[S1, S2], [S2, S3] -> {S1: gather(0), S2: reduce(sum), S3: gather(1)}, partial = [sum: 0 -> 0, sum: 1 -> 0], found = exact>, dist.strategy = #dist.strategy<@mesh, {"tp": S3(pieces = [4, 4, 4])}>} : (tensor<4x8xf32>, tensor<8x12xf32>) -> tensor<4x12xf32>
  %split = onnx.Constant dense<4> : tensor<3xi64>
  %q, %k, %v = "onnx.Split"(%h, %split) <{axis = 1 : si64}> {dist.rule = #dist.rule<[S1, S2(pieces = [1, 1, 1])], [_] -> {S1: [gather(0), gather(0), gather(0)], S2: [gather(1), gather(1), gather(1)]}, sizes = {split[0]: S2, split[1]: S2, split[2]: S2}, partial = [sum: 0 -> (0, 1, 2), max: 0 -> (0, 1, 2), min: 0 -> (0, 1, 2)], found = exact>, dist.strategy = #dist.strategy<@mesh, {"tp": S2}>} : (tensor<4x12xf32>, tensor<3xi64>) -> (tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>)
  func.return %q, %k, %v : tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>
}

// CHECK:      func.func @main
// CHECK-SAME: %w: tensor<8x6xf32, #dist.on<0>> {dist.part = #dist.part<[0:8, 0:2 + 4:6 + 8:10] of [8, 12]>}
// CHECK-SAME: %w_1: tensor<8x6xf32, #dist.on<1>> {dist.part = #dist.part<[0:8, 2:4 + 6:8 + 10:12] of [8, 12]>}
// CHECK-NEXT: %h = "onnx.MatMul"(%x, %w)
// CHECK-NEXT: %h_1 = "onnx.MatMul"(%x_1, %w_1)
// CHECK-NEXT: %0 = onnx.Constant dense<2> : tensor<3xi64, #dist.on<0>>
// CHECK-NEXT: "onnx.Split"(%h, %0)

// -----

// Cut in pieces [2, 2, 2] by two devices: parts 0, 2, 4 and 1, 3, 5.
dist.mesh @mesh = <["tp" = 2]>
func.func @main(%x: tensor<6xf32> {dist.sharding = #dist.sharding<@mesh, [{}]>}) -> tensor<6xf32> {
  %y = "onnx.Neg"(%x) {dist.rule = #dist.rule<[S1] -> {S1: gather(0)}, partial = [sum: 0 -> 0], found = exact>, dist.strategy = #dist.strategy<@mesh, {"tp": S1(pieces = [2, 2, 2])}>} : (tensor<6xf32>) -> tensor<6xf32>
  func.return %y : tensor<6xf32>
}

// CHECK:      %4 = dist.slice %x_1 [1:2]
// CHECK-NEXT: %5 = dist.slice %x_1 [3:4]
// CHECK-NEXT: %6 = dist.slice %x_1 [5:6]
// CHECK-NEXT: %7 = dist.concat %4, %5, %6 dim 0 :
// CHECK:      %y_1 = "onnx.Neg"(%7)

// -----

// Gathered, the parts come in the order 0 2 4 1 3 5 and are put back: the whole is places 0 3 1 4 2 5 of what came.
dist.mesh @mesh = <["tp" = 2]>
func.func @main(%x: tensor<6xf32> {dist.sharding = #dist.sharding<@mesh, [{"tp" [2, 2, 2]}]>}) -> tensor<6xf32> {
  %y = "onnx.Neg"(%x) {dist.rule = #dist.rule<[S1] -> {S1: gather(0)}, partial = [sum: 0 -> 0], found = exact>} : (tensor<6xf32>) -> tensor<6xf32>
  func.return %y : tensor<6xf32>
}

// CHECK:      %0, %1 = dist.allgather %x, %x_1 dim 0
// CHECK-NEXT: %2 = dist.slice %0 [0:1]
// CHECK-NEXT: %3 = dist.slice %0 [3:4]
// CHECK-NEXT: %4 = dist.slice %0 [1:2]
// CHECK-NEXT: %5 = dist.slice %0 [4:5]
// CHECK-NEXT: %6 = dist.slice %0 [2:3]
// CHECK-NEXT: %7 = dist.slice %0 [5:6]
// CHECK-NEXT: %8 = dist.concat %2, %3, %4, %5, %6, %7 dim 0

// -----

// A sum scattered in pieces is first put in the order of the shards: 0 2 4 1 3 5.
dist.mesh @mesh = <["tp" = 2]>
func.func @main(%x: tensor<4x8xf32>, %w: tensor<8x6xf32>) -> tensor<4x6xf32> {
  %h = "onnx.MatMul"(%x, %w) {dist.rule = #dist.rule<[S1, S2], [S2, S3] -> {S1: gather(0), S2: reduce(sum), S3: gather(1)}, partial = [sum: 0 -> 0, sum: 1 -> 0], found = exact>, dist.strategy = #dist.strategy<@mesh, {"tp": S2}>} : (tensor<4x8xf32>, tensor<8x6xf32>) -> tensor<4x6xf32>
  %y = "onnx.Relu"(%h) {dist.rule = #dist.rule<[S1, S2] -> {S1: gather(0), S2: gather(1)}, partial = [max: 0 -> 0, min: 0 -> 0], found = exact>, dist.strategy = #dist.strategy<@mesh, {"tp": S2(pieces = [2, 2, 2])}>} : (tensor<4x6xf32>) -> tensor<4x6xf32>
  func.return %y : tensor<4x6xf32>
}

// CHECK:      %0 = dist.slice %h [0:4, 0:1]
// CHECK-NEXT: %1 = dist.slice %h [0:4, 2:3]
// CHECK-NEXT: %2 = dist.slice %h [0:4, 4:5]
// CHECK-NEXT: %3 = dist.slice %h [0:4, 1:2]
// CHECK-NEXT: %4 = dist.slice %h [0:4, 3:4]
// CHECK-NEXT: %5 = dist.slice %h [0:4, 5:6]
// CHECK-NEXT: %6 = dist.concat %0, %1, %2, %3, %4, %5 dim 1
// CHECK:      dist.reducescatter sum %6, %{{.*}} dim 1 :
