// RUN: distir-opt %s -p overlap-communication,check-module | filecheck %s

// A sum of activations that a layer returns, and that its caller uses at once, runs beside what the layer computes after it, but does not stand behind reductions of
// gradients.
dist.mesh @mesh = <["dp" = 2]>

// CHECK:      func.func @main
// CHECK-NEXT: %h, %v = dist.call @layer(%x)
// CHECK-NEXT: [[H:%.*]] = dist.move %h : tensor<4x4xf32, #dist.on<0:2, "collective">> -> tensor<4x4xf32, #dist.on<0:2>>
// CHECK-NEXT: %y, %w = dist.call @layer([[H]])
// CHECK-NEXT: [[Z:%.*]] = dist.move %y
// CHECK-NEXT: "onnx.Relu"([[Z]])
func.func @main(%x: tensor<4x4xf32, #dist.on<0:2>> {dist.part = #dist.part<[0:4, 0:4] of [4, 4]>}) -> (tensor<4x4xf32, #dist.on<0:2>>, tensor<2x4xf32, #dist.on<0:2>>, tensor<2x4xf32, #dist.on<0:2>>) {
  %h, %v = dist.call @layer(%x) on [0, 1] : (tensor<4x4xf32, #dist.on<0:2>>) -> (tensor<4x4xf32, #dist.on<0:2>>, tensor<2x4xf32, #dist.on<0:2>>)
  %y, %w = dist.call @layer(%h) on [0, 1] : (tensor<4x4xf32, #dist.on<0:2>>) -> (tensor<4x4xf32, #dist.on<0:2>>, tensor<2x4xf32, #dist.on<0:2>>)
  %z = "onnx.Relu"(%y) : (tensor<4x4xf32, #dist.on<0:2>>) -> tensor<4x4xf32, #dist.on<0:2>>
  func.return %z, %v, %w : tensor<4x4xf32, #dist.on<0:2>>, tensor<2x4xf32, #dist.on<0:2>>, tensor<2x4xf32, #dist.on<0:2>>
}

// CHECK:      func.func private @layer
// CHECK:      [[Y:%.*]] = dist.allreduce sum {{.*}} -> tensor<4x4xf32, #dist.on<0:2, "collective">>
// CHECK-NEXT: onnx.MatMul
// CHECK:      [[G:%.*]] = dist.reducescatter sum {{.*}} -> tensor<2x4xf32, #dist.on<0:2, "reduce">>
// CHECK-NEXT: func.return [[Y]], [[G]]
func.func private @layer(%x: tensor<4x4xf32, #dist.on<0:2>>) -> (tensor<4x4xf32, #dist.on<0:2>>, tensor<2x4xf32, #dist.on<0:2>>) {
  %p = "onnx.MatMul"(%x, %x) : (tensor<4x4xf32, #dist.on<0:2>>, tensor<4x4xf32, #dist.on<0:2>>) -> tensor<4x4xf32, #dist.on<0:2>>
  %y = dist.allreduce sum %p over "dp" : (tensor<4x4xf32, #dist.on<0:2>>) -> tensor<4x4xf32, #dist.on<0:2>>
  %q = "onnx.MatMul"(%p, %x) : (tensor<4x4xf32, #dist.on<0:2>>, tensor<4x4xf32, #dist.on<0:2>>) -> tensor<4x4xf32, #dist.on<0:2>>
  %d = dist.reducescatter sum %q dim 0 over "dp" : (tensor<4x4xf32, #dist.on<0:2>>) -> tensor<2x4xf32, #dist.on<0:2>>
  func.return %y, %d : tensor<4x4xf32, #dist.on<0:2>>, tensor<2x4xf32, #dist.on<0:2>>
}
