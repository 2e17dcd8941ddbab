// RUN: distir-opt %s -p 'shardcombine-annotate,microbatch{count=2},pipeline-schedule' | filecheck %s

// The gradient of each of two weights is added to its sum inside the layer that makes it. The first microbatch runs copies of the stage's function
// and of the layer that take no sum and add nothing; one copy of the layer is enough for both calls. The update takes the sum.
func.func @main(%x: tensor<8x4xf32> {dist.name = "x", dist.role = "input"}, %w: tensor<4x4xf32> {dist.name = "w", dist.role = "parameter"},
                %v: tensor<4x4xf32> {dist.name = "v", dist.role = "parameter"})
    -> (tensor<4x4xf32> {dist.name = "w", dist.role = "parameter"}, tensor<4x4xf32> {dist.name = "v", dist.role = "parameter"}) {
  %dw, %dv = func.call @backward_0(%x, %w) {dist.stage = 0 : i64, dist.phase = "backward"} : (tensor<8x4xf32>, tensor<4x4xf32>) -> (tensor<4x4xf32>, tensor<4x4xf32>)
  %new_w, %new_v = func.call @update_0(%w, %dw, %v, %dv) {dist.stage = 0 : i64, dist.phase = "update"} : (tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>) -> (tensor<4x4xf32>, tensor<4x4xf32>)
  func.return %new_w, %new_v : tensor<4x4xf32>, tensor<4x4xf32>
}
func.func private @backward_0(%x: tensor<8x4xf32>, %w: tensor<4x4xf32>) -> (tensor<4x4xf32>, tensor<4x4xf32>) {
  %h = "onnx.MatMul"(%x, %w) : (tensor<8x4xf32>, tensor<4x4xf32>) -> tensor<8x4xf32>
  %dw = func.call @layer(%x, %x) : (tensor<8x4xf32>, tensor<8x4xf32>) -> tensor<4x4xf32>
  %dv = func.call @layer(%x, %h) : (tensor<8x4xf32>, tensor<8x4xf32>) -> tensor<4x4xf32>
  func.return %dw, %dv : tensor<4x4xf32>, tensor<4x4xf32>
}
func.func private @layer(%x: tensor<8x4xf32>, %h: tensor<8x4xf32>) -> tensor<4x4xf32> {
  %t = "onnx.Transpose"(%x) <{perm = [1 : i64, 0 : i64]}> : (tensor<8x4xf32>) -> tensor<4x8xf32>
  %dw = "onnx.MatMul"(%t, %h) : (tensor<4x8xf32>, tensor<8x4xf32>) -> tensor<4x4xf32>
  func.return %dw : tensor<4x4xf32>
}
func.func private @update_0(%w: tensor<4x4xf32>, %dw: tensor<4x4xf32>, %v: tensor<4x4xf32>, %dv: tensor<4x4xf32>) -> (tensor<4x4xf32>, tensor<4x4xf32>) {
  %new_w = grad.sgd %w, %dw learning_rate 1.000000e-01 : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %new_v = grad.sgd %v, %dv learning_rate 1.000000e-01 : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  func.return %new_w, %new_v : tensor<4x4xf32>, tensor<4x4xf32>
}

// CHECK:      func.func @main
// CHECK-NOT:  dist.zeros
// CHECK:      [[DW:%.*]], [[DV:%.*]] = dist.call @[[FIRST:[a-z0-9_]+]](%{{[a-z0-9_]+}}, %w) on [0]
// CHECK:      [[DW_1:%.*]], [[DV_1:%.*]] = dist.call @backward_0(%{{[a-z0-9_]+}}, %w, [[DW]], [[DV]]) on [0]
// CHECK-NEXT: dist.call @update_0(%w, [[DW_1]], %v, [[DV_1]]) on [0]
// CHECK:      func.func private @[[FIRST]](
// CHECK-NEXT: "onnx.MatMul"
// CHECK-NEXT: dist.call @[[LAYER:[a-z0-9_]+_first]](%{{[a-z0-9_]+}}, %{{[a-z0-9_]+}}) on [0]
// CHECK-NEXT: dist.call @[[LAYER]](%{{[a-z0-9_]+}}, %{{[a-z0-9_]+}}) on [0]
// CHECK-NEXT: func.return
// CHECK:      func.func private @[[LAYER]](
// CHECK-NEXT: "onnx.Transpose"
// CHECK-NEXT: %[[DW:[a-z0-9_]+]] = "onnx.MatMul"
// CHECK-NEXT: func.return %[[DW]]
