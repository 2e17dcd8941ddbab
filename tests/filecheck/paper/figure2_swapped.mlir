// Figure 2 with its lines 20 and 21 swapped (Figure 3, bottom): the send that gives %ar_2 waits for %as_2 and keeps
// device 1 from computing %p_1 meanwhile. The values are the same; the schedule takes longer.
// RUN: distir-opt %s -p 'simulate{machine="%S/../passes/Inputs/unit.toml"}' | filecheck %s

// ar_2 runs at 6.5-7 as before but now ahead of p_1, which runs at 7-9 instead of 4.5-6.5; dp_1 and all that follows it
// start 2 us later than in Figure 2.
// CHECK: func.func @main
// CHECK-SAME: dist.simulated_picoseconds = 25000000 : i64

#weight = #dist.part<[0:8, 0:8] of [8, 8]>
#batch = #dist.part<[0:4, 0:8] of [4, 8]>
!w0 = tensor<8x8xf32, #dist.on<0>>
!w1 = tensor<8x8xf32, #dist.on<1>>
!x0 = tensor<4x8xf32, #dist.on<0>>
!x1 = tensor<4x8xf32, #dist.on<1>>
!h0 = tensor<2x8xf32, #dist.on<0>>
!h1 = tensor<2x8xf32, #dist.on<1>>
!w = tensor<8x8xf32>
!h = tensor<2x8xf32>

builtin.module attributes {dist.devices = 2 : i64} {
  func.func @main(
      %w1: !w0 {dist.name = "w1", dist.role = "parameter", dist.part = #weight},
      %w2: !w1 {dist.name = "w2", dist.role = "parameter", dist.part = #weight},
      %x: !x0 {dist.name = "x", dist.role = "input", dist.part = #batch},
      %y: !x1 {dist.name = "y", dist.role = "label", dist.part = #batch}
  ) -> (
      !w0 {dist.name = "w1", dist.role = "parameter", dist.part = #weight},
      !w1 {dist.name = "w2", dist.role = "parameter", dist.part = #weight}
  ) {
    // Split into microbatches 1 and 2.
    %x_1 = dist.slice %x [0:2, 0:8] : !x0 -> !h0
    %x_2 = dist.slice %x [2:4, 0:8] : !x0 -> !h0
    %y_1 = dist.slice %y [0:2, 0:8] : !x1 -> !h1
    %y_2 = dist.slice %y [2:4, 0:8] : !x1 -> !h1
    // Pipeline.
    %as_1 = dist.call @dense(%w1, %x_1) on [0] : (!w0, !h0) -> !h0
    %ar_1 = dist.send %as_1 to 1 : !h0 -> !h1
    %as_2 = dist.call @dense(%w1, %x_2) on [0] : (!w0, !h0) -> !h0
    %ar_2 = dist.send %as_2 to 1 : !h0 -> !h1
    %p_1 = dist.call @dense(%w2, %ar_1) on [1] : (!w1, !h1) -> !h1
    %dp_1 = dist.call @loss_grad(%p_1, %y_1) on [1] : (!h1, !h1) -> !h1
    %dw2_1, %das_1 = dist.call @dense_grad(%w2, %ar_1, %dp_1) on [1] : (!w1, !h1, !h1) -> (!w1, !h1)
    %dar_1 = dist.send %das_1 to 0 : !h1 -> !h0
    %dw1_1, %dx_1 = dist.call @dense_grad(%w1, %x_1, %dar_1) on [0] : (!w0, !h0, !h0) -> (!w0, !h0)
    %p_2 = dist.call @dense(%w2, %ar_2) on [1] : (!w1, !h1) -> !h1
    %dp_2 = dist.call @loss_grad(%p_2, %y_2) on [1] : (!h1, !h1) -> !h1
    %dw2_2, %das_2 = dist.call @dense_grad(%w2, %ar_2, %dp_2) on [1] : (!w1, !h1, !h1) -> (!w1, !h1)
    %dar_2 = dist.send %das_2 to 0 : !h1 -> !h0
    %dw1_2, %dx_2 = dist.call @dense_grad(%w1, %x_2, %dar_2) on [0] : (!w0, !h0, !h0) -> (!w0, !h0)
    // Weight update.
    %dw1 = dist.accumulate sum %dw1_1, %dw1_2 : (!w0, !w0) -> !w0
    %w1_new = dist.call @optimizer(%w1, %dw1) on [0] : (!w0, !w0) -> !w0
    %dw2 = dist.accumulate sum %dw2_1, %dw2_2 : (!w1, !w1) -> !w1
    %w2_new = dist.call @optimizer(%w2, %dw2) on [1] : (!w1, !w1) -> !w1
    func.return %w1_new, %w2_new : !w0, !w1
  }
  func.func @dense(%w: !w, %x: !h) -> !h {
    %h = "onnx.MatMul"(%x, %w) : (!h, !w) -> !h
    %a = "onnx.Relu"(%h) : (!h) -> !h
    func.return %a : !h
  }
  func.func @dense_grad(%w: !w, %x: !h, %da: !h) -> (!w, !h) {
    %h = "onnx.MatMul"(%x, %w) : (!h, !w) -> !h
    %dh = grad.relu_grad %h, %da : (!h, !h) -> !h
    %dx, %dw = grad.matmul_grad %x, %w, %dh : (!h, !w, !h) -> (!h, !w)
    func.return %dw, %dx : !w, !h
  }
  func.func @loss_grad(%p: !h, %y: !h) -> !h {
    %n = onnx.Constant dense<4.0> : tensor<f32>
    %dp = grad.loss_grad %p, %y, %n : (!h, !h, tensor<f32>) -> !h
    func.return %dp : !h
  }
  func.func @optimizer(%w: !w, %dw: !w) -> !w {
    %w_new = grad.sgd %w, %dw learning_rate 1.000000e-01 : (!w, !w) -> !w
    func.return %w_new : !w
  }
}
