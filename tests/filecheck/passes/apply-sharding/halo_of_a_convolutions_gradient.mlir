// RUN: distir-opt %s -p apply-sharding | filecheck %s

// Of the gradient, each shard has its own rows and zeros around them; of the input, its neighbour's too. Results are addends.

// CHECK:      func.func @main
// CHECK:      %[[after:.*]] = dist.zeros : tensor<1x1x1xf32, #dist.on<0>>
// CHECK-NEXT: dist.concat %g, %[[after]] dim 2
// CHECK-NEXT: %[[before:.*]] = dist.zeros : tensor<1x1x1xf32, #dist.on<1>>
// CHECK-NEXT: dist.concat %[[before]], %g_1 dim 2
// CHECK-NEXT: dist.exchange %x, %x_1 dim 2 from [0, 2]
// CHECK-COUNT-2: "aten.convolution_backward"
// CHECK-NEXT: func.return

dist.mesh @mesh = <["a" = 2]>
func.func @main(%g: tensor<1x1x6xf32>, %x: tensor<1x1x6xf32>, %w: tensor<1x1x3xf32>) -> tensor<1x1x3xf32> {
  %n, %y, %m = "aten.convolution_backward"(%g, %x, %w) <{bias_sizes = array<i64: 0>, stride = array<i64: 1>, padding = array<i64: 1>, dilation = array<i64: 1>, transposed = false, output_padding = array<i64: 0>, groups = 1 : i64, output_mask = [false, true, false]}> {dist.rule = #dist.rule<[_, _, S1(halo = 1, fill = zero)], [_, _, S1(halo = 1)], [_, _, _] -> {S1: [identity, reduce(sum), identity]}, found = exact>, dist.strategy = #dist.strategy<@mesh, {"a": S1}>} : (tensor<1x1x6xf32>, tensor<1x1x6xf32>, tensor<1x1x3xf32>) -> (none, tensor<1x1x3xf32>, none)
  func.return %y : tensor<1x1x3xf32>
}
