// RUN: distir-opt %s -p overlap-communication,check-module | filecheck %s

// The last microbatch's update waits for the sum of gradients at once. Those before it do not, and in it the rest of the layer runs beside the reduction: it is on a
// stream in all, and the sum comes back where it is used. A layer's sum of activations, which every call waits for, stays.
dist.mesh @mesh = <["dp" = 2]>

// CHECK:      func.func @main
// CHECK-NEXT: [[Z:%.*]] = dist.move %z : tensor<2x4xf32, #dist.on<0:2>> -> tensor<2x4xf32, #dist.on<0:2, "reduce">>
// CHECK-NEXT: %h, [[A:%.*]] = dist.call @backward(%x, [[Z]])
// CHECK-NEXT: %y, [[B:%.*]] = dist.call @backward(%h, [[A]])
// CHECK-NEXT: [[S:%.*]] = dist.move [[B]] : tensor<2x4xf32, #dist.on<0:2, "reduce">> -> tensor<2x4xf32, #dist.on<0:2>>
// CHECK-NEXT: "onnx.Sub"(%w, [[S]])
func.func @main(%x: tensor<4x4xf32, #dist.on<0:2>> {dist.part = #dist.part<[0:4, 0:4] of [4, 4]>}, %z: tensor<2x4xf32, #dist.on<0:2>> {dist.part = #dist.part<[0:2, 0:4] of [4, 4], "dp" + [2, 0]>}, %w: tensor<2x4xf32, #dist.on<0:2>> {dist.part = #dist.part<[0:2, 0:4] of [4, 4], "dp" + [2, 0]>}) -> (tensor<4x4xf32, #dist.on<0:2>>, tensor<2x4xf32, #dist.on<0:2>>) {
  %h, %a = dist.call @backward(%x, %z) on [0, 1] : (tensor<4x4xf32, #dist.on<0:2>>, tensor<2x4xf32, #dist.on<0:2>>) -> (tensor<4x4xf32, #dist.on<0:2>>, tensor<2x4xf32, #dist.on<0:2>>)
  %y, %b = dist.call @backward(%h, %a) on [0, 1] : (tensor<4x4xf32, #dist.on<0:2>>, tensor<2x4xf32, #dist.on<0:2>>) -> (tensor<4x4xf32, #dist.on<0:2>>, tensor<2x4xf32, #dist.on<0:2>>)
  %u = "onnx.Sub"(%w, %b) : (tensor<2x4xf32, #dist.on<0:2>>, tensor<2x4xf32, #dist.on<0:2>>) -> tensor<2x4xf32, #dist.on<0:2>>
  func.return %y, %u : tensor<4x4xf32, #dist.on<0:2>>, tensor<2x4xf32, #dist.on<0:2>>
}

// CHECK:      func.func private @backward
// CHECK:      [[C:%.*]], [[D:%.*]] = dist.call @layer(%x, %z)
// CHECK-NEXT: func.return [[C]], [[D]]
func.func private @backward(%x: tensor<4x4xf32, #dist.on<0:2>>, %z: tensor<2x4xf32, #dist.on<0:2>>) -> (tensor<4x4xf32, #dist.on<0:2>>, tensor<2x4xf32, #dist.on<0:2>>) {
  %y, %a = dist.call @layer(%x, %z) on [0, 1] : (tensor<4x4xf32, #dist.on<0:2>>, tensor<2x4xf32, #dist.on<0:2>>) -> (tensor<4x4xf32, #dist.on<0:2>>, tensor<2x4xf32, #dist.on<0:2>>)
  func.return %y, %a : tensor<4x4xf32, #dist.on<0:2>>, tensor<2x4xf32, #dist.on<0:2>>
}

// CHECK:      func.func private @layer
// CHECK:      dist.reducescatter sum {{.*}} -> tensor<2x4xf32, #dist.on<0:2, "reduce">>
// CHECK-NEXT: [[E:%.*]] = dist.accumulate sum {{.*}} -> tensor<2x4xf32, #dist.on<0:2, "reduce">>
// CHECK-NEXT: onnx.Relu
// CHECK-NEXT: dist.allreduce sum {{.*}} -> tensor<4x4xf32, #dist.on<0:2>>
// CHECK-NEXT: func.return {{.*}}, [[E]]
func.func private @layer(%x: tensor<4x4xf32, #dist.on<0:2>>, %z: tensor<2x4xf32, #dist.on<0:2>>) -> (tensor<4x4xf32, #dist.on<0:2>>, tensor<2x4xf32, #dist.on<0:2>>) {
  %p = "onnx.MatMul"(%x, %x) : (tensor<4x4xf32, #dist.on<0:2>>, tensor<4x4xf32, #dist.on<0:2>>) -> tensor<4x4xf32, #dist.on<0:2>>
  %d = dist.reducescatter sum %p dim 0 over "dp" : (tensor<4x4xf32, #dist.on<0:2>>) -> tensor<2x4xf32, #dist.on<0:2>>
  %a = dist.accumulate sum %z, %d : (tensor<2x4xf32, #dist.on<0:2>>, tensor<2x4xf32, #dist.on<0:2>>) -> tensor<2x4xf32, #dist.on<0:2>>
  %q = "onnx.Relu"(%p) : (tensor<4x4xf32, #dist.on<0:2>>) -> tensor<4x4xf32, #dist.on<0:2>>
  %y = dist.allreduce sum %q over "dp" : (tensor<4x4xf32, #dist.on<0:2>>) -> tensor<4x4xf32, #dist.on<0:2>>
  func.return %y, %a : tensor<4x4xf32, #dist.on<0:2>>, tensor<2x4xf32, #dist.on<0:2>>
}
