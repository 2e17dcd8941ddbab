// RUN: distir-opt %s -p pipeline-schedule | filecheck %s

// The first stage reads a running mean, the second makes the next one: it is sent to where the next step reads it. A value that no stage reads stays
// where it is made.
func.func @main(%x: tensor<4x8xf32> {dist.name = "x", dist.role = "input"}, %mean: tensor<4x8xf32> {dist.name = "mean", dist.role = "state"},
                %last: tensor<4x8xf32> {dist.name = "last", dist.role = "state"})
    -> (tensor<4x8xf32> {dist.name = "mean", dist.role = "state"}, tensor<4x8xf32> {dist.name = "last", dist.role = "state"}) {
  %a = func.call @forward_0(%x, %mean) {dist.stage = 0 : i64, dist.phase = "forward"} : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  %b = func.call @forward_1(%a) {dist.stage = 1 : i64, dist.phase = "forward"} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  func.return %b, %b : tensor<4x8xf32>, tensor<4x8xf32>
}
func.func private @forward_0(%x: tensor<4x8xf32>, %y: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %a = "onnx.Sub"(%x, %y) : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  func.return %a : tensor<4x8xf32>
}
func.func private @forward_1(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %a = "onnx.Relu"(%x) : (tensor<4x8xf32>) -> tensor<4x8xf32>
  func.return %a : tensor<4x8xf32>
}

// CHECK:      func.func @main(
// CHECK-SAME: %mean: tensor<4x8xf32, #dist.on<0>>
// CHECK-SAME: %last: tensor<4x8xf32, #dist.on<1>>
// CHECK:      [[B:%.*]] = dist.call @forward_1(%{{[a-z0-9_]+}}) on [1]
// CHECK-NEXT: %[[SENT:[a-z0-9_]+]] = dist.send [[B]] to 0
// CHECK-NEXT: func.return %[[SENT]], [[B]]
