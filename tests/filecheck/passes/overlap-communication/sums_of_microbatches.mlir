// RUN: distir-opt %s -p overlap-communication,check-module | filecheck %s

// Gradients that are reduced in every microbatch: a part is added to the sum of those before on the stream on which it arrives, and computation waits for
// neither. A collective that the layer itself waits for has another stream: it does not stand behind them.
dist.mesh @mesh = <["dp" = 2]>

// CHECK:      func.func @main
// CHECK-NEXT: [[Z:%.*]] = dist.move %z : tensor<2x4xf32, #dist.on<0:2>> -> tensor<2x4xf32, #dist.on<0:2, "reduce">>
// CHECK-NEXT: %h, [[A:%.*]] = dist.call @layer(%x, [[Z]])
// CHECK-NEXT: %y, [[B:%.*]] = dist.call @layer(%h, [[A]])
// CHECK-NEXT: [[S:%.*]] = dist.move [[B]] : tensor<2x4xf32, #dist.on<0:2, "reduce">> -> tensor<2x4xf32, #dist.on<0:2>>
// CHECK-NEXT: func.return %y, [[S]]
func.func @main(%x: tensor<4x4xf32, #dist.on<0:2>> {dist.part = #dist.part<[0:4, 0:4] of [4, 4]>}, %z: tensor<2x4xf32, #dist.on<0:2>> {dist.part = #dist.part<[0:2, 0:4] of [4, 4], "dp" + [2, 0]>}) -> (tensor<4x4xf32, #dist.on<0:2>>, tensor<2x4xf32, #dist.on<0:2>>) {
  %h, %a = dist.call @layer(%x, %z) on [0, 1] : (tensor<4x4xf32, #dist.on<0:2>>, tensor<2x4xf32, #dist.on<0:2>>) -> (tensor<4x4xf32, #dist.on<0:2>>, tensor<2x4xf32, #dist.on<0:2>>)
  %y, %b = dist.call @layer(%h, %a) on [0, 1] : (tensor<4x4xf32, #dist.on<0:2>>, tensor<2x4xf32, #dist.on<0:2>>) -> (tensor<4x4xf32, #dist.on<0:2>>, tensor<2x4xf32, #dist.on<0:2>>)
  func.return %y, %b : tensor<4x4xf32, #dist.on<0:2>>, tensor<2x4xf32, #dist.on<0:2>>
}

// CHECK:      func.func private @layer
// CHECK:      [[P:%.*]] = dist.move %p
// CHECK-NEXT: [[D:%.*]] = dist.reducescatter sum [[P]] {{.*}} -> tensor<2x4xf32, #dist.on<0:2, "reduce">>
// CHECK-NEXT: onnx.Relu
// CHECK:      dist.allreduce sum {{.*}} -> tensor<4x4xf32, #dist.on<0:2, "collective">>
// CHECK-NEXT: [[C:%.*]] = "onnx.Neg"([[D]]) {{.*}} -> tensor<2x4xf32, #dist.on<0:2, "reduce">>
// CHECK-NEXT: [[A:%.*]] = dist.accumulate sum %z, [[C]] {{.*}} -> tensor<2x4xf32, #dist.on<0:2, "reduce">>
// CHECK:      func.return %{{.*}}, [[A]]
func.func private @layer(%x: tensor<4x4xf32, #dist.on<0:2>>, %z: tensor<2x4xf32, #dist.on<0:2>>) -> (tensor<4x4xf32, #dist.on<0:2>>, tensor<2x4xf32, #dist.on<0:2>>) {
  %p = "onnx.MatMul"(%x, %x) : (tensor<4x4xf32, #dist.on<0:2>>, tensor<4x4xf32, #dist.on<0:2>>) -> tensor<4x4xf32, #dist.on<0:2>>
  %d = dist.reducescatter sum %p dim 0 over "dp" : (tensor<4x4xf32, #dist.on<0:2>>) -> tensor<2x4xf32, #dist.on<0:2>>
  %q = "onnx.Relu"(%p) : (tensor<4x4xf32, #dist.on<0:2>>) -> tensor<4x4xf32, #dist.on<0:2>>
  %e = dist.allreduce sum %q over "dp" : (tensor<4x4xf32, #dist.on<0:2>>) -> tensor<4x4xf32, #dist.on<0:2>>
  %n = "onnx.Neg"(%d) : (tensor<2x4xf32, #dist.on<0:2>>) -> tensor<2x4xf32, #dist.on<0:2>>
  %a = dist.accumulate sum %z, %n : (tensor<2x4xf32, #dist.on<0:2>>, tensor<2x4xf32, #dist.on<0:2>>) -> tensor<2x4xf32, #dist.on<0:2>>
  %r = "onnx.Relu"(%p) : (tensor<4x4xf32, #dist.on<0:2>>) -> tensor<4x4xf32, #dist.on<0:2>>
  %y = "onnx.Add"(%r, %e) : (tensor<4x4xf32, #dist.on<0:2>>, tensor<4x4xf32, #dist.on<0:2>>) -> tensor<4x4xf32, #dist.on<0:2>>
  func.return %y, %a : tensor<4x4xf32, #dist.on<0:2>>, tensor<2x4xf32, #dist.on<0:2>>
}
