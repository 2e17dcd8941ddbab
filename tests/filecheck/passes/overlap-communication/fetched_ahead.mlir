// RUN: distir-opt %s -p overlap-communication,check-module | filecheck %s
// RUN: distir-opt %s -p 'overlap-communication{prefetch=2}' | filecheck %s --check-prefix=TWO
// RUN: distir-opt %s -p 'overlap-communication{prefetch=0}' | filecheck %s --check-prefix=ANY

// A stage of three layers: what a layer gathers is held until it is used, so that it goes to the stream for it only when the layer before begins. What the first one gathers is
// fetched when the stage begins.
dist.mesh @mesh = <["dp" = 2]>

func.func @main(%x: tensor<4x8xf32, #dist.on<0:2>> {dist.part = #dist.part<[0:4, 0:8] of [8, 8], "dp" + [4, 0]>},
                %u: tensor<8x4xf32, #dist.on<0:2>> {dist.part = #dist.part<[0:8, 0:4] of [8, 8], "dp" + [0, 4]>},
                %v: tensor<8x4xf32, #dist.on<0:2>> {dist.part = #dist.part<[0:8, 0:4] of [8, 8], "dp" + [0, 4]>},
                %w: tensor<8x4xf32, #dist.on<0:2>> {dist.part = #dist.part<[0:8, 0:4] of [8, 8], "dp" + [0, 4]>})
    -> (tensor<4x8xf32, #dist.on<0:2>> {dist.part = #dist.part<[0:4, 0:8] of [8, 8], "dp" + [4, 0]>}) {
  %y = dist.call @stage(%x, %u, %v, %w) on [0, 1] : (tensor<4x8xf32, #dist.on<0:2>>, tensor<8x4xf32, #dist.on<0:2>>, tensor<8x4xf32, #dist.on<0:2>>, tensor<8x4xf32, #dist.on<0:2>>) -> tensor<4x8xf32, #dist.on<0:2>>
  func.return %y : tensor<4x8xf32, #dist.on<0:2>>
}

// CHECK:      func.func @main
// CHECK-NEXT: %[[U:.*]] = dist.move %u
// CHECK-NEXT: dist.call @stage(%x, %[[U]], %v, %w)

func.func private @stage(%x: tensor<4x8xf32, #dist.on<0:2>>, %u: tensor<8x4xf32, #dist.on<0:2>>, %v: tensor<8x4xf32, #dist.on<0:2>>, %w: tensor<8x4xf32, #dist.on<0:2>>) -> tensor<4x8xf32, #dist.on<0:2>> {
  %a = dist.call @layer(%x, %u) on [0, 1] : (tensor<4x8xf32, #dist.on<0:2>>, tensor<8x4xf32, #dist.on<0:2>>) -> tensor<4x8xf32, #dist.on<0:2>>
  %b = dist.call @layer(%a, %v) on [0, 1] : (tensor<4x8xf32, #dist.on<0:2>>, tensor<8x4xf32, #dist.on<0:2>>) -> tensor<4x8xf32, #dist.on<0:2>>
  %c = dist.call @layer(%b, %w) on [0, 1] : (tensor<4x8xf32, #dist.on<0:2>>, tensor<8x4xf32, #dist.on<0:2>>) -> tensor<4x8xf32, #dist.on<0:2>>
  func.return %c : tensor<4x8xf32, #dist.on<0:2>>
}

// CHECK:      func.func private @stage
// CHECK-NEXT: %[[V:.*]] = dist.move %v
// CHECK-NEXT: [[A:%.*]] = dist.call @layer(%x, %u)
// CHECK-NEXT: %[[W:.*]] = dist.move %w
// CHECK-NEXT: [[B:%.*]] = dist.call @layer([[A]], %[[V]])
// CHECK-NEXT: %c = dist.call @layer([[B]], %[[W]])

// TWO:      func.func private @stage
// TWO-NEXT: %[[W:.*]] = dist.move %w
// TWO-NEXT: [[A:%.*]] = dist.call @layer(%x, %u)
// TWO-NEXT: [[B:%.*]] = dist.call @layer([[A]], %v)
// TWO-NEXT: %c = dist.call @layer([[B]], %[[W]])

// ANY:      func.func @main
// ANY:      %[[W:.*]] = dist.move %w
// ANY:      dist.call @stage(%x, %{{.*}}, %{{.*}}, %[[W]])

func.func private @layer(%x: tensor<4x8xf32, #dist.on<0:2>>, %w: tensor<8x4xf32, #dist.on<0:2>>) -> tensor<4x8xf32, #dist.on<0:2>> {
  %g = dist.allgather %w dim 1 over "dp" : (tensor<8x4xf32, #dist.on<0:2>>) -> tensor<8x8xf32, #dist.on<0:2>>
  %y = "onnx.MatMul"(%x, %g) : (tensor<4x8xf32, #dist.on<0:2>>, tensor<8x8xf32, #dist.on<0:2>>) -> tensor<4x8xf32, #dist.on<0:2>>
  func.return %y : tensor<4x8xf32, #dist.on<0:2>>
}
