// Figure 9 of the paper: data parallelism with ZeRO partitioning of parameters and gradients (stages 2 and 3). Each
// device keeps one parameter and is sent the other when it needs it. data_parallel.mlir keeps both on both.
// RUN: distir-opt %s -p 'simulate{machine="%S/../passes/Inputs/unit.toml"}' | filecheck %s

// Device 0, in the reduction to %dw1: arguments 384, both its gradients 512, the result 256.
// Device 1, in the matmul_grad of %w1: arguments 384, %w1_2_b 256, %dw2_2 256, dh 64, results 64 + 256.
// CHECK: func.func @main
// CHECK-SAME: dist.peak_memory_bytes = array<i64: 1152, 1280>

#weight = #dist.part<[0:8, 0:8] of [8, 8]>
#first = #dist.part<[0:2, 0:8] of [4, 8]>
#second = #dist.part<[2:4, 0:8] of [4, 8]>
!w0 = tensor<8x8xf32, #dist.on<0>>
!w1 = tensor<8x8xf32, #dist.on<1>>
!h0 = tensor<2x8xf32, #dist.on<0>>
!h1 = tensor<2x8xf32, #dist.on<1>>
!w = tensor<8x8xf32>
!h = tensor<2x8xf32>

builtin.module attributes {dist.devices = 2 : i64} {
  func.func @main(
      %w1: !w0 {dist.name = "w1", dist.role = "parameter", dist.part = #weight},
      %w2: !w1 {dist.name = "w2", dist.role = "parameter", dist.part = #weight},
      %x_1: !h0 {dist.name = "x", dist.role = "input", dist.part = #first},
      %x_2: !h1 {dist.name = "x", dist.role = "input", dist.part = #second},
      %y_1: !h0 {dist.name = "y", dist.role = "label", dist.part = #first},
      %y_2: !h1 {dist.name = "y", dist.role = "label", dist.part = #second}
  ) -> (
      !w0 {dist.name = "w1", dist.role = "parameter", dist.part = #weight},
      !w1 {dist.name = "w2", dist.role = "parameter", dist.part = #weight}
  ) {
    %as_1 = dist.call @dense(%w1, %x_1) on [0] : (!w0, !h0) -> !h0
    // %w1 is managed by device 0 alone.
    %w1_2_f = dist.send %w1 to 1 : !w0 -> !w1
    %as_2 = dist.call @dense(%w1_2_f, %x_2) on [1] : (!w1, !h1) -> !h1
    // %w1_2_f is reclaimed. %w2 is managed by device 1 alone.
    %w2_1_f = dist.send %w2 to 0 : !w1 -> !w0
    %p_1 = dist.call @dense(%w2_1_f, %as_1) on [0] : (!w0, !h0) -> !h0
    // %w2_1_f is reclaimed.
    %p_2 = dist.call @dense(%w2, %as_2) on [1] : (!w1, !h1) -> !h1
    %dp_1 = dist.call @loss_grad(%p_1, %y_1) on [0] : (!h0, !h0) -> !h0
    %dp_2 = dist.call @loss_grad(%p_2, %y_2) on [1] : (!h1, !h1) -> !h1
    // Send %w2 again.
    %w2_1_b = dist.send %w2 to 0 : !w1 -> !w0
    %dw2_1, %das_1 = dist.call @dense_grad(%w2_1_b, %as_1, %dp_1) on [0] : (!w0, !h0, !h0) -> (!w0, !h0)
    %dw2_2, %das_2 = dist.call @dense_grad(%w2, %as_2, %dp_2) on [1] : (!w1, !h1, !h1) -> (!w1, !h1)
    %dw1_1, %dx_1 = dist.call @dense_grad(%w1, %x_1, %das_1) on [0] : (!w0, !h0, !h0) -> (!w0, !h0)
    // Send %w1 again.
    %w1_2_b = dist.send %w1 to 1 : !w0 -> !w1
    %dw1_2, %dx_2 = dist.call @dense_grad(%w1_2_b, %x_2, %das_2) on [1] : (!w1, !h1, !h1) -> (!w1, !h1)
    // Weight update.
    %dw1 = dist.reduce sum %dw1_1, %dw1_2 to 0 : (!w0, !w1) -> !w0
    %dw2 = dist.reduce sum %dw2_1, %dw2_2 to 1 : (!w0, !w1) -> !w1
    %w1_new = dist.call @optimizer(%w1, %dw1) on [0] : (!w0, !w0) -> !w0
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
