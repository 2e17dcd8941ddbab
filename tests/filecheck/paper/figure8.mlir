// Figure 8 of the paper: gradient checkpointing. The activation %as_f is dropped after %p and computed again, as %as_b,
// where the backward pass needs it: 2 us longer than the sequential step. With two layers it is gone only while the
// loss runs, which is not where memory peaks; passes/simulate_checkpointing.mlir has a third layer and a lower peak.
// RUN: distir-opt %s -p 'simulate{machine="%S/../passes/Inputs/unit.toml"}' | filecheck %s

// CHECK: func.func @main
// CHECK-SAME: dist.simulated_picoseconds = 15000000 : i64, dist.peak_memory_bytes = array<i64: 1536>

#weight = #dist.part<[0:8, 0:8] of [8, 8]>
#batch = #dist.part<[0:4, 0:8] of [4, 8]>
!w0 = tensor<8x8xf32, #dist.on<0>>
!x0 = tensor<4x8xf32, #dist.on<0>>
!w = tensor<8x8xf32>
!x = tensor<4x8xf32>

builtin.module attributes {dist.devices = 1 : i64} {
  func.func @main(
      %w1: !w0 {dist.name = "w1", dist.role = "parameter", dist.part = #weight},
      %w2: !w0 {dist.name = "w2", dist.role = "parameter", dist.part = #weight},
      %x: !x0 {dist.name = "x", dist.role = "input", dist.part = #batch},
      %y: !x0 {dist.name = "y", dist.role = "label", dist.part = #batch}
  ) -> (
      !w0 {dist.name = "w1", dist.role = "parameter", dist.part = #weight},
      !w0 {dist.name = "w2", dist.role = "parameter", dist.part = #weight}
  ) {
    %as_f = dist.call @dense(%w1, %x) on [0] : (!w0, !x0) -> !x0
    %p = dist.call @dense(%w2, %as_f) on [0] : (!w0, !x0) -> !x0
    %dp = dist.call @loss_grad(%p, %y) on [0] : (!x0, !x0) -> !x0
    // Recompute the activation, whose memory was reclaimed after %p.
    %as_b = dist.call @dense(%w1, %x) on [0] : (!w0, !x0) -> !x0
    %dw2, %das = dist.call @dense_grad(%w2, %as_b, %dp) on [0] : (!w0, !x0, !x0) -> (!w0, !x0)
    %dw1, %dx = dist.call @dense_grad(%w1, %x, %das) on [0] : (!w0, !x0, !x0) -> (!w0, !x0)
    // Weight update.
    %w1_new = dist.call @optimizer(%w1, %dw1) on [0] : (!w0, !w0) -> !w0
    %w2_new = dist.call @optimizer(%w2, %dw2) on [0] : (!w0, !w0) -> !w0
    func.return %w1_new, %w2_new : !w0, !w0
  }
  func.func @dense(%w: !w, %x: !x) -> !x {
    %h = "onnx.MatMul"(%x, %w) : (!x, !w) -> !x
    %a = "onnx.Relu"(%h) : (!x) -> !x
    func.return %a : !x
  }
  func.func @dense_grad(%w: !w, %x: !x, %da: !x) -> (!w, !x) {
    %h = "onnx.MatMul"(%x, %w) : (!x, !w) -> !x
    %dh = grad.relu_grad %h, %da : (!x, !x) -> !x
    %dx, %dw = grad.matmul_grad %x, %w, %dh : (!x, !w, !x) -> (!x, !w)
    func.return %dw, %dx : !w, !x
  }
  func.func @loss_grad(%p: !x, %y: !x) -> !x {
    %n = onnx.Constant dense<4.0> : tensor<f32>
    %dp = grad.loss_grad %p, %y, %n : (!x, !x, tensor<f32>) -> !x
    func.return %dp : !x
  }
  func.func @optimizer(%w: !w, %dw: !w) -> !w {
    %w_new = grad.sgd %w, %dw learning_rate 1.000000e-01 : (!w, !w) -> !w
    func.return %w_new : !w
  }
}
