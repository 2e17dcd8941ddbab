// A collective on a second stream overlaps with computation on the first; the move that brings its result back waits.
// RUN: distir-opt %s -p 'simulate{machine="%S/../Inputs/unit.toml"}' | filecheck %s

// Both devices: %0 0-1, allreduce 1-1.5 on "comm" while %1 runs 1-2 on the main stream, %2 2-3.
// Memory: argument 40, %0, the allreduce's result and %1; then the result, %1 and %2.
// CHECK: func.func @main
// CHECK-SAME: dist.simulated_picoseconds = 3000000 : i64, dist.peak_memory_bytes = array<i64: 160, 160>

!t0 = tensor<10xf32, #dist.on<0>>
!t1 = tensor<10xf32, #dist.on<1>>
!c0 = tensor<10xf32, #dist.on<0, "comm">>
!c1 = tensor<10xf32, #dist.on<1, "comm">>

builtin.module attributes {dist.devices = 2 : i64} {
  func.func @main(%a: !t0, %b: !t1) -> (!t0, !t1) {
    %0 = "onnx.Relu"(%a) : (!t0) -> !t0
    %00 = "onnx.Relu"(%b) : (!t1) -> !t1
    %m = dist.move %0 : !t0 -> !c0
    %n = dist.move %00 : !t1 -> !c1
    %r, %s = dist.allreduce sum %m, %n : (!c0, !c1) -> (!c0, !c1)
    %1 = "onnx.Relu"(%a) : (!t0) -> !t0
    %01 = "onnx.Relu"(%b) : (!t1) -> !t1
    %x = dist.move %r : !c0 -> !t0
    %y = dist.move %s : !c1 -> !t1
    %2 = "onnx.Add"(%1, %x) : (!t0, !t0) -> !t0
    %02 = "onnx.Add"(%01, %y) : (!t1, !t1) -> !t1
    func.return %2, %02 : !t0, !t1
  }
}
