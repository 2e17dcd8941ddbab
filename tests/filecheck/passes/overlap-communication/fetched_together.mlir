// RUN: distir-opt %s -p overlap-communication,check-module | filecheck %s
// RUN: distir-opt %s -p 'overlap-communication{bucket=300}' | filecheck %s --check-prefix=SMALL

// What a layer gathers of its arguments is one message, where the first of it was, as far as a bucket holds: it is not cut off by what is computed between.
dist.mesh @mesh = <["dp" = 2]>

func.func @main(%x: tensor<4x8xf32, #dist.on<0:2>> {dist.part = #dist.part<[0:4, 0:8] of [8, 8], "dp" + [4, 0]>},
                %v: tensor<8x4xf32, #dist.on<0:2>> {dist.part = #dist.part<[0:8, 0:4] of [8, 8], "dp" + [0, 4]>},
                %w: tensor<8x4xf32, #dist.on<0:2>> {dist.part = #dist.part<[0:8, 0:4] of [8, 8], "dp" + [0, 4]>})
    -> (tensor<4x8xf32, #dist.on<0:2>> {dist.part = #dist.part<[0:4, 0:8] of [8, 8], "dp" + [4, 0]>}) {
  %y = dist.call @layer(%x, %v, %w) on [0, 1] : (tensor<4x8xf32, #dist.on<0:2>>, tensor<8x4xf32, #dist.on<0:2>>, tensor<8x4xf32, #dist.on<0:2>>) -> tensor<4x8xf32, #dist.on<0:2>>
  func.return %y : tensor<4x8xf32, #dist.on<0:2>>
}

// CHECK:      func.func private @layer
// CHECK-NEXT: %[[P:.*]] = dist.pack %v, %w
// CHECK-NEXT: %[[G:.*]] = dist.allgather %[[P]] dim 1
// CHECK-COUNT-2: "onnx.MatMul"

// SMALL:      func.func private @layer
// SMALL-COUNT-2: dist.allgather

func.func private @layer(%x: tensor<4x8xf32, #dist.on<0:2>>, %v: tensor<8x4xf32, #dist.on<0:2>>, %w: tensor<8x4xf32, #dist.on<0:2>>) -> tensor<4x8xf32, #dist.on<0:2>> {
  %g = dist.allgather %v dim 1 over "dp" : (tensor<8x4xf32, #dist.on<0:2>>) -> tensor<8x8xf32, #dist.on<0:2>>
  %h = "onnx.MatMul"(%x, %g) : (tensor<4x8xf32, #dist.on<0:2>>, tensor<8x8xf32, #dist.on<0:2>>) -> tensor<4x8xf32, #dist.on<0:2>>
  %k = dist.allgather %w dim 1 over "dp" : (tensor<8x4xf32, #dist.on<0:2>>) -> tensor<8x8xf32, #dist.on<0:2>>
  %y = "onnx.MatMul"(%h, %k) : (tensor<4x8xf32, #dist.on<0:2>>, tensor<8x8xf32, #dist.on<0:2>>) -> tensor<4x8xf32, #dist.on<0:2>>
  func.return %y : tensor<4x8xf32, #dist.on<0:2>>
}
