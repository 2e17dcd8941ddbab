// RUN: distir-opt %s -p overlap-communication,check-module | filecheck %s

// A sum that is reduced over one axis and then over another: computation waits for the last alone, in a function and in the entry.
dist.mesh @mesh = <["pod" = 2, "dp" = 2]>

// CHECK:      func.func @main
// CHECK:      %[[D:.*]] = dist.reducescatter sum %{{.*}} -> tensor<2x4xf32, #dist.on<0:4, "collective">>
// CHECK-NEXT: %[[B:.*]] = dist.allreduce sum %[[D]] {{.*}} -> tensor<2x4xf32, #dist.on<0:4, "collective">>
// CHECK-NEXT: %h, [[A:%.*]] = dist.call @layer(%x) on [0, 1, 2, 3] : {{.*}} -> (tensor<4x4xf32, #dist.on<0:4>>, tensor<2x4xf32, #dist.on<0:4, "reduce">>)
// CHECK-NEXT: onnx.Relu
// CHECK-DAG:  dist.move [[A]]
// CHECK-DAG:  dist.move %[[B]]
// CHECK:      onnx.Add
func.func @main(%x: tensor<4x4xf32, #dist.on<0:4>> {dist.part = #dist.part<[0:4, 0:4] of [4, 4]>}, %z: tensor<4x4xf32, #dist.on<0:4>> {dist.part = #dist.part<[0:4, 0:4] of [4, 4], partial sum>}) -> (tensor<4x4xf32, #dist.on<0:4>>, tensor<2x4xf32, #dist.on<0:4>>) {
  %d = dist.reducescatter sum %z dim 0 over "dp" : (tensor<4x4xf32, #dist.on<0:4>>) -> tensor<2x4xf32, #dist.on<0:4>>
  %b = dist.allreduce sum %d over "pod" : (tensor<2x4xf32, #dist.on<0:4>>) -> tensor<2x4xf32, #dist.on<0:4>>
  %h, %a = dist.call @layer(%x) on [0, 1, 2, 3] : (tensor<4x4xf32, #dist.on<0:4>>) -> (tensor<4x4xf32, #dist.on<0:4>>, tensor<2x4xf32, #dist.on<0:4>>)
  %r = "onnx.Relu"(%h) : (tensor<4x4xf32, #dist.on<0:4>>) -> tensor<4x4xf32, #dist.on<0:4>>
  %s = "onnx.Add"(%a, %b) : (tensor<2x4xf32, #dist.on<0:4>>, tensor<2x4xf32, #dist.on<0:4>>) -> tensor<2x4xf32, #dist.on<0:4>>
  func.return %r, %s : tensor<4x4xf32, #dist.on<0:4>>, tensor<2x4xf32, #dist.on<0:4>>
}

// CHECK:      func.func private @layer
// CHECK:      %[[P:.*]] = "onnx.MatMul"
// CHECK:      dist.reducescatter sum %{{.*}} -> tensor<2x4xf32, #dist.on<0:4, "reduce">>
// CHECK-NEXT: %[[A:.*]] = dist.allreduce sum %{{.*}} -> tensor<2x4xf32, #dist.on<0:4, "reduce">>
// CHECK:      func.return %{{.*}}, %[[A]]
func.func private @layer(%x: tensor<4x4xf32, #dist.on<0:4>>) -> (tensor<4x4xf32, #dist.on<0:4>>, tensor<2x4xf32, #dist.on<0:4>>) {
  %p = "onnx.MatMul"(%x, %x) : (tensor<4x4xf32, #dist.on<0:4>>, tensor<4x4xf32, #dist.on<0:4>>) -> tensor<4x4xf32, #dist.on<0:4>>
  %d = dist.reducescatter sum %p dim 0 over "dp" : (tensor<4x4xf32, #dist.on<0:4>>) -> tensor<2x4xf32, #dist.on<0:4>>
  %a = dist.allreduce sum %d over "pod" : (tensor<2x4xf32, #dist.on<0:4>>) -> tensor<2x4xf32, #dist.on<0:4>>
  %y = "onnx.Relu"(%p) : (tensor<4x4xf32, #dist.on<0:4>>) -> tensor<4x4xf32, #dist.on<0:4>>
  func.return %y, %a : tensor<4x4xf32, #dist.on<0:4>>, tensor<2x4xf32, #dist.on<0:4>>
}
