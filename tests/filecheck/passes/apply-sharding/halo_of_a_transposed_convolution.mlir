// RUN: distir-opt %s -p apply-sharding | filecheck %s

// A step gives two rows of the result, of which the second feels the next step too: seven rows of four steps are shared 3 and 4. The first shard runs
// two steps, which give its rows; the second begins between two steps, runs both, and slices off the row that is not its own.

// CHECK:      func.func @main
// CHECK-SAME: dist.part<[0:1, 0:1, 0:3] of [1, 1, 7]>{{.*}}dist.part<[0:1, 0:1, 3:7] of [1, 1, 7]>
// CHECK-NEXT: dist.exchange %x, %x_1 dim 2 from [0, 1] : {{.*}} -> (tensor<1x1x2xf32, #dist.on<0>>, tensor<1x1x3xf32, #dist.on<1>>)
// CHECK-NEXT: "aten.convolution"{{.*}} -> tensor<1x1x3xf32, #dist.on<0>>
// CHECK-NEXT: "aten.convolution"{{.*}} -> tensor<1x1x5xf32, #dist.on<1>>
// CHECK-NEXT: dist.slice {{.*}} [0:1, 0:1, 1:5]
// CHECK-NEXT: func.return

dist.mesh @mesh = <["a" = 2]>
func.func @main(%x: tensor<1x1x4xf32>, %w: tensor<1x1x3xf32>) -> tensor<1x1x7xf32> {
  %y = "aten.convolution"(%x, %w) <{stride = array<i64: 2>, padding = array<i64: 1>, dilation = array<i64: 1>, transposed = true, output_padding = array<i64: 0>, groups = 1 : i64}> {dist.rule = #dist.rule<[_, _, S1(halo = [0, 1])], [_, _, _] -> {S1: gather(2, halo = [0, -1], stride = 2)}, found = exact>, dist.strategy = #dist.strategy<@mesh, {"a": S1}>} : (tensor<1x1x4xf32>, tensor<1x1x3xf32>) -> tensor<1x1x7xf32>
  func.return %y : tensor<1x1x7xf32>
}
