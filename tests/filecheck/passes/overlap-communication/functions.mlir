// RUN: distir-opt %s -p overlap-communication,check-module | filecheck %s

// Sharded data parallelism. A layer gathers its weight ahead of what is computed, on a stream of its own, with the conversion that it is for, from when the layer before begins. The sum of
// its gradients is reduced beside the next layer: it is returned on its stream, and comes back where the entry adds it.
dist.mesh @mesh = <["dp" = 2]>

func.func @main(%x: tensor<4x8xf32, #dist.on<0:2>> {dist.part = #dist.part<[0:4, 0:8] of [8, 8], "dp" + [4, 0]>},
                %w: tensor<8x4xf64, #dist.on<0:2>> {dist.part = #dist.part<[0:8, 0:4] of [8, 8], "dp" + [0, 4]>},
                %v: tensor<8x4xf64, #dist.on<0:2>> {dist.part = #dist.part<[0:8, 0:4] of [8, 8], "dp" + [0, 4]>})
    -> (tensor<4x8xf32, #dist.on<0:2>> {dist.part = #dist.part<[0:4, 0:8] of [8, 8], "dp" + [4, 0]>},
        tensor<8x4xf32, #dist.on<0:2>> {dist.part = #dist.part<[0:8, 0:4] of [8, 8], "dp" + [0, 4]>}) {
  %h, %a = dist.call @layer(%x, %w) on [0, 1] : (tensor<4x8xf32, #dist.on<0:2>>, tensor<8x4xf64, #dist.on<0:2>>) -> (tensor<4x8xf32, #dist.on<0:2>>, tensor<8x4xf32, #dist.on<0:2>>)
  %y, %b = dist.call @layer(%h, %v) on [0, 1] : (tensor<4x8xf32, #dist.on<0:2>>, tensor<8x4xf64, #dist.on<0:2>>) -> (tensor<4x8xf32, #dist.on<0:2>>, tensor<8x4xf32, #dist.on<0:2>>)
  %r = "onnx.Relu"(%y) : (tensor<4x8xf32, #dist.on<0:2>>) -> tensor<4x8xf32, #dist.on<0:2>>
  %s = "onnx.Add"(%a, %b) : (tensor<8x4xf32, #dist.on<0:2>>, tensor<8x4xf32, #dist.on<0:2>>) -> tensor<8x4xf32, #dist.on<0:2>>
  func.return %r, %s : tensor<4x8xf32, #dist.on<0:2>>, tensor<8x4xf32, #dist.on<0:2>>
}

// CHECK:      func.func @main
// CHECK-NEXT: %[[W:.*]] = dist.move %w : tensor<8x4xf64, #dist.on<0:2>> -> tensor<8x4xf64, #dist.on<0:2, "prefetch">>
// CHECK-NEXT: %[[V:.*]] = dist.move %v : tensor<8x4xf64, #dist.on<0:2>> -> tensor<8x4xf64, #dist.on<0:2, "prefetch">>
// CHECK-NEXT: %h, %a = dist.call @layer(%x, %[[W]]) on [0, 1] : {{.*}} -> (tensor<4x8xf32, #dist.on<0:2>>, tensor<8x4xf32, #dist.on<0:2, "reduce">>)
// CHECK-NEXT: %y, %b = dist.call @layer(%h, %[[V]]) on [0, 1]
// CHECK-NEXT: onnx.Relu
// CHECK-DAG:  %[[A:.*]] = dist.move %a : tensor<8x4xf32, #dist.on<0:2, "reduce">> -> tensor<8x4xf32, #dist.on<0:2>>
// CHECK-DAG:  %[[B:.*]] = dist.move %b : tensor<8x4xf32, #dist.on<0:2, "reduce">> -> tensor<8x4xf32, #dist.on<0:2>>
// CHECK:      "onnx.Add"(%[[A]], %[[B]])

func.func private @layer(%x: tensor<4x8xf32, #dist.on<0:2>>, %w: tensor<8x4xf64, #dist.on<0:2>>) -> (tensor<4x8xf32, #dist.on<0:2>>, tensor<8x4xf32, #dist.on<0:2>>) {
  %t = "onnx.Transpose"(%x) : (tensor<4x8xf32, #dist.on<0:2>>) -> tensor<8x4xf32, #dist.on<0:2>>
  %c = "onnx.Cast"(%w) <{to = f32}> : (tensor<8x4xf64, #dist.on<0:2>>) -> tensor<8x4xf32, #dist.on<0:2>>
  %g = dist.allgather %c dim 1 over "dp" : (tensor<8x4xf32, #dist.on<0:2>>) -> tensor<8x8xf32, #dist.on<0:2>>
  %y = "onnx.MatMul"(%x, %g) : (tensor<4x8xf32, #dist.on<0:2>>, tensor<8x8xf32, #dist.on<0:2>>) -> tensor<4x8xf32, #dist.on<0:2>>
  %p = "onnx.MatMul"(%t, %y) : (tensor<8x4xf32, #dist.on<0:2>>, tensor<4x8xf32, #dist.on<0:2>>) -> tensor<8x8xf32, #dist.on<0:2>>
  %d = dist.reducescatter sum %p dim 1 over "dp" : (tensor<8x8xf32, #dist.on<0:2>>) -> tensor<8x4xf32, #dist.on<0:2>>
  %n = "onnx.Neg"(%d) : (tensor<8x4xf32, #dist.on<0:2>>) -> tensor<8x4xf32, #dist.on<0:2>>
  func.return %y, %n : tensor<4x8xf32, #dist.on<0:2>>, tensor<8x4xf32, #dist.on<0:2>>
}

// CHECK:      func.func private @layer(%x: {{.*}}, %w: tensor<8x4xf64, #dist.on<0:2, "prefetch">>) -> (tensor<4x8xf32, #dist.on<0:2>>, tensor<8x4xf32, #dist.on<0:2, "reduce">>)
// CHECK-NEXT: onnx.Transpose
// CHECK-NEXT: %c = "onnx.Cast"(%w)
// CHECK-NEXT: %g = dist.allgather %c dim 1 over "dp" : (tensor<8x4xf32, #dist.on<0:2, "prefetch">>)
// CHECK-NEXT: %[[G:.*]] = dist.move %g : tensor<8x8xf32, #dist.on<0:2, "prefetch">> -> tensor<8x8xf32, #dist.on<0:2>>
// CHECK-NEXT: %y = "onnx.MatMul"(%x, %[[G]])
// CHECK-NEXT: %p = "onnx.MatMul"
// CHECK-NEXT: %[[P:.*]] = dist.move %p
// CHECK-NEXT: %d = dist.reducescatter sum %[[P]] dim 1 over "dp" : (tensor<8x8xf32, #dist.on<0:2, "reduce">>)
// CHECK-NEXT: %n = "onnx.Neg"(%d) : (tensor<8x4xf32, #dist.on<0:2, "reduce">>)
// CHECK-NEXT: func.return %y, %n
