// RUN: distir-opt %s -p 'pipeline-stages{stages=2 split-backward=true}' | filecheck %s
// RUN: distir-opt %s -p 'pipeline-stages{stages=2 split-backward=true},microbatch{count=2},pipeline-schedule{schedule=zb-h1}' | filecheck %s --check-prefix=ZB

// The second stage's backward part is the gradient that the first waits for, through half of its layer; what is left of the layer, the gradient of
// the weight, takes what the first half made, and is a phase of its own. No stage waits for the first: all that it does is of that phase.
func.func @main(%x: tensor<8x4xf32> {dist.name = "x", dist.role = "input"}, %z: tensor<8x4xf32> {dist.name = "z", dist.role = "label"}, %n: tensor<f32> {dist.name = "n", dist.role = "input"},
                %w: tensor<4x4xf32> {dist.name = "w", dist.role = "parameter"}, %v: tensor<4x4xf32> {dist.name = "v", dist.role = "parameter"})
    -> (tensor<8x4xf32> {dist.name = "loss", dist.role = "output"}, tensor<4x4xf32> {dist.name = "w", dist.role = "parameter"}, tensor<4x4xf32> {dist.name = "v", dist.role = "parameter"}) {
  %h = "onnx.MatMul"(%x, %w) {dist.rule = #dist.rule<[S1, S2], [S2, S3] -> {S1: gather(0), S2: reduce(sum), S3: gather(1)}, partial = [sum: 0 -> 0, sum: 1 -> 0], found = exact>} : (tensor<8x4xf32>, tensor<4x4xf32>) -> tensor<8x4xf32>
  %y = "onnx.MatMul"(%h, %v) {dist.rule = #dist.rule<[S1, S2], [S2, S3] -> {S1: gather(0), S2: reduce(sum), S3: gather(1)}, partial = [sum: 0 -> 0, sum: 1 -> 0], found = exact>} : (tensor<8x4xf32>, tensor<4x4xf32>) -> tensor<8x4xf32>
  %loss = grad.loss %y, %z, %n {dist.rule = #dist.rule<[S1, S2], [S1, S2], [] -> {S1: gather(0), S2: gather(1)}, found = exact>} : (tensor<8x4xf32>, tensor<8x4xf32>, tensor<f32>) -> tensor<8x4xf32>
  %dy = grad.loss_grad %y, %z, %n {dist.rule = #dist.rule<[S1, S2], [S1, S2], [] -> {S1: gather(0), S2: gather(1)}, partial = [sum: (0, 1) -> 0], found = exact>} : (tensor<8x4xf32>, tensor<8x4xf32>, tensor<f32>) -> tensor<8x4xf32>
  %dh, %dv = func.call @layer(%dy, %h, %v) : (tensor<8x4xf32>, tensor<8x4xf32>, tensor<4x4xf32>) -> (tensor<8x4xf32>, tensor<4x4xf32>)
  %dx, %dw = func.call @layer(%dh, %x, %w) : (tensor<8x4xf32>, tensor<8x4xf32>, tensor<4x4xf32>) -> (tensor<8x4xf32>, tensor<4x4xf32>)
  %new_w = grad.sgd %w, %dw learning_rate 1.000000e-01 {dist.rule = #dist.rule<[S1, S2], [S1, S2] -> {S1: gather(0), S2: gather(1)}, partial = [sum: (0, 1) -> 0], found = exact>} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %new_v = grad.sgd %v, %dv learning_rate 1.000000e-01 {dist.rule = #dist.rule<[S1, S2], [S1, S2] -> {S1: gather(0), S2: gather(1)}, partial = [sum: (0, 1) -> 0], found = exact>} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  func.return %loss, %new_w, %new_v : tensor<8x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>
}
func.func private @layer(%g: tensor<8x4xf32>, %h: tensor<8x4xf32>, %w: tensor<4x4xf32>) -> (tensor<8x4xf32>, tensor<4x4xf32>) {
  %r = "onnx.Relu"(%g) {dist.rule = #dist.rule<[S1, S2] -> {S1: gather(0), S2: gather(1)}, found = exact>} : (tensor<8x4xf32>) -> tensor<8x4xf32>
  %ht = "onnx.Transpose"(%h) <{perm = [1 : i64, 0 : i64]}> {dist.rule = #dist.rule<[S1, S2] -> {S1: gather(1), S2: gather(0)}, partial = [sum: 0 -> 0], found = exact>} : (tensor<8x4xf32>) -> tensor<4x8xf32>
  %dw = "onnx.MatMul"(%ht, %r) {dist.rule = #dist.rule<[S1, S2], [S2, S3] -> {S1: gather(0), S2: reduce(sum), S3: gather(1)}, partial = [sum: 0 -> 0, sum: 1 -> 0], found = exact>} : (tensor<4x8xf32>, tensor<8x4xf32>) -> tensor<4x4xf32>
  %wt = "onnx.Transpose"(%w) <{perm = [1 : i64, 0 : i64]}> {dist.rule = #dist.rule<[S1, S2] -> {S1: gather(1), S2: gather(0)}, partial = [sum: 0 -> 0], found = exact>} : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %dh = "onnx.MatMul"(%r, %wt) {dist.rule = #dist.rule<[S1, S2], [S2, S3] -> {S1: gather(0), S2: reduce(sum), S3: gather(1)}, partial = [sum: 0 -> 0, sum: 1 -> 0], found = exact>} : (tensor<8x4xf32>, tensor<4x4xf32>) -> tensor<8x4xf32>
  func.return %dh, %dw : tensor<8x4xf32>, tensor<4x4xf32>
}

// CHECK:      func.func @main
// CHECK:      func.call @backward_1(%y, %z, %n, %v) {dist.stage = 1 : i64, dist.phase = "backward"}
// CHECK-NEXT: func.call @weights_1(
// CHECK-SAME: dist.phase = "weights"
// CHECK-NEXT: func.call @weights_0(%dh, %x, %w) {dist.stage = 0 : i64, dist.phase = "weights"}
// CHECK-NEXT: func.call @update_0(

// CHECK:      func.func private @layer_inputs(
// CHECK-NEXT: [[R:%.*]] = "onnx.Relu"
// CHECK-NEXT: [[WT:%.*]] = "onnx.Transpose"(%w)
// CHECK-NEXT: [[DH:%.*]] = "onnx.MatMul"([[R]], [[WT]])
// CHECK-NEXT: func.return [[DH]], [[R]] :
// CHECK:      func.func private @layer_weights(%h: tensor<8x4xf32>, %r: tensor<8x4xf32>) -> tensor<4x4xf32>

// The second rank runs ahead of its gradients of weights.
// ZB:         dist.call @backward_1(%{{.*}}) on [1]
// ZB:         dist.send
// ZB:         dist.call @weights_0_first(%{{.*}}) on [0]
// ZB:         dist.call @backward_1(%{{.*}}) on [1]
// ZB:         dist.call @weights_1_first(%{{.*}}) on [1]
// ZB:         dist.call @weights_1(%{{.*}}) on [1]
