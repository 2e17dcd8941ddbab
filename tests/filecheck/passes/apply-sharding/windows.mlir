// RUN: distir-opt %s --split-input-file -p apply-sharding | filecheck %s

// A step gives two rows of the result, of which the second feels the next step too: seven rows of four steps are shared 3 and 4. The first
// shard runs two steps, which give its rows; the second begins between two steps, runs both, and slices off the row that is not its own.
// CHECK-LABEL: func.func @main
dist.mesh @mesh = <["a" = 2]>
func.func @main(%x: tensor<1x1x4xf32>, %w: tensor<1x1x3xf32>) -> tensor<1x1x7xf32> {
  %y = "aten.convolution"(%x, %w) <{stride = array<i64: 2>, padding = array<i64: 1>, dilation = array<i64: 1>, transposed = true, output_padding = array<i64: 0>, groups = 1 : i64}> {dist.rule = #dist.rule<[_, _, S1(halo = [0, 1])], [_, _, _] -> {S1: gather(2, halo = [0, -1], stride = 2)}, found = exact>, dist.strategy = #dist.strategy<@mesh, {"a": S1}>} : (tensor<1x1x4xf32>, tensor<1x1x3xf32>) -> tensor<1x1x7xf32>
  func.return %y : tensor<1x1x7xf32>
}
// CHECK-SAME: dist.part<[0:1, 0:1, 0:3] of [1, 1, 7]>{{.*}}dist.part<[0:1, 0:1, 3:7] of [1, 1, 7]>
// CHECK-NEXT: dist.exchange %x, %x_1 dim 2 from [0, 1] : {{.*}} -> (tensor<1x1x2xf32, #dist.on<0>>, tensor<1x1x3xf32, #dist.on<1>>)
// CHECK-NEXT: "aten.convolution"{{.*}} -> tensor<1x1x3xf32, #dist.on<0>>
// CHECK-NEXT: "aten.convolution"{{.*}} -> tensor<1x1x5xf32, #dist.on<1>>
// CHECK-NEXT: dist.slice {{.*}} [0:1, 0:1, 1:5]
// CHECK-NEXT: func.return

// -----

// Of the gradient, each shard has its own rows and zeros around them; of the input, its neighbour's too. Results are addends.
// CHECK-LABEL: func.func @main
dist.mesh @mesh = <["a" = 2]>
func.func @main(%g: tensor<1x1x6xf32>, %x: tensor<1x1x6xf32>, %w: tensor<1x1x3xf32>) -> tensor<1x1x3xf32> {
  %n, %y, %m = "aten.convolution_backward"(%g, %x, %w) <{bias_sizes = array<i64: 0>, stride = array<i64: 1>, padding = array<i64: 1>, dilation = array<i64: 1>, transposed = false, output_padding = array<i64: 0>, groups = 1 : i64, output_mask = [false, true, false]}> {dist.rule = #dist.rule<[_, _, S1(halo = 1, fill = zero)], [_, _, S1(halo = 1)], [_, _, _] -> {S1: [identity, reduce(sum), identity]}, found = exact>, dist.strategy = #dist.strategy<@mesh, {"a": S1}>} : (tensor<1x1x6xf32>, tensor<1x1x6xf32>, tensor<1x1x3xf32>) -> (none, tensor<1x1x3xf32>, none)
  func.return %y : tensor<1x1x3xf32>
}
// CHECK:      %[[after:.*]] = dist.zeros : tensor<1x1x1xf32, #dist.on<0>>
// CHECK-NEXT: dist.concat %g, %[[after]] dim 2
// CHECK-NEXT: %[[before:.*]] = dist.zeros : tensor<1x1x1xf32, #dist.on<1>>
// CHECK-NEXT: dist.concat %[[before]], %g_1 dim 2
// CHECK-NEXT: dist.exchange %x, %x_1 dim 2 from [0, 2]
// CHECK-COUNT-2: "aten.convolution_backward"
// CHECK-NEXT: func.return

// -----

// Of the gradient of a pooling of maxima both operands are exchanged: which of a window's pixels is the largest, a shard sees by its
// neighbour's rows too.
// CHECK-LABEL: func.func @main
dist.mesh @mesh = <["a" = 2]>
func.func @main(%g: tensor<1x1x8x4xf32>, %x: tensor<1x1x16x4xf32>) -> tensor<1x1x16x4xf32> {
  %y = "aten.max_pool2d_backward"(%g, %x) <{kernel_size = array<i64: 3, 1>, stride = array<i64: 2, 1>, padding = array<i64: 1, 0>}> {dist.rule = #dist.rule<[_, _, S1(halo = [1, 2]), _], [_, _, S1(halo = [2, 4], stride = 2), _] -> {S1: gather(2, halo = [-2, -3], stride = 2)}, found = probed>, dist.strategy = #dist.strategy<@mesh, {"a": S1}>} : (tensor<1x1x8x4xf32>, tensor<1x1x16x4xf32>) -> tensor<1x1x16x4xf32>
  func.return %y : tensor<1x1x16x4xf32>
}
// CHECK:      dist.exchange %g, %g_1 dim 2 from [0, 2]
// CHECK-NEXT: dist.exchange %x, %x_1 dim 2 from [0, 4]
// CHECK-COUNT-2: "aten.max_pool2d_backward"{{.*}} -> tensor<1x1x12x4xf32
// CHECK-NEXT: dist.slice {{.*}} [0:1, 0:1, 0:8, 0:4]
// CHECK-NEXT: dist.slice {{.*}} [0:1, 0:1, 4:12, 0:4]
// CHECK-NEXT: func.return
