// RUN: distir-opt %s -p apply-sharding | filecheck %s

// Of the gradient of a pooling of maxima both operands are exchanged: which of a window's pixels is the largest, a shard sees by its neighbour's rows
// too.

// CHECK:      func.func @main
// CHECK:      dist.exchange %g, %g_1 dim 2 from [0, 2]
// CHECK-NEXT: dist.exchange %x, %x_1 dim 2 from [0, 4]
// CHECK-COUNT-2: "aten.max_pool2d_backward"{{.*}} -> tensor<1x1x12x4xf32
// CHECK-NEXT: dist.slice {{.*}} [0:1, 0:1, 0:8, 0:4]
// CHECK-NEXT: dist.slice {{.*}} [0:1, 0:1, 4:12, 0:4]
// CHECK-NEXT: func.return

dist.mesh @mesh = <["a" = 2]>
func.func @main(%g: tensor<1x1x8x4xf32>, %x: tensor<1x1x16x4xf32>) -> tensor<1x1x16x4xf32> {
  %y = "aten.max_pool2d_backward"(%g, %x) <{kernel_size = array<i64: 3, 1>, stride = array<i64: 2, 1>, padding = array<i64: 1, 0>}> {dist.rule = #dist.rule<[_, _, S1(halo = [1, 2]), _], [_, _, S1(halo = [2, 4], stride = 2), _] -> {S1: gather(2, halo = [-2, -3], stride = 2)}, found = probed>, dist.strategy = #dist.strategy<@mesh, {"a": S1}>} : (tensor<1x1x8x4xf32>, tensor<1x1x16x4xf32>) -> tensor<1x1x16x4xf32>
  func.return %y : tensor<1x1x16x4xf32>
}
