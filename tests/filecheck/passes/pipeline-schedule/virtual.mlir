// RUN: distir-opt %s -p 'pipeline-stages{stages=2 virtual=2},microbatch{count=2},pipeline-schedule{schedule=interleaved}' | filecheck %s
// RUN: distir-opt %s -p 'pipeline-stages{stages=2 virtual=2},microbatch{count=2},pipeline-schedule{schedule=zbv}' | filecheck %s --check-prefix=ZBV
// RUN: distir-opt %s -p 'pipeline-stages{stages=4},microbatch{count=2},pipeline-schedule{schedule="%S/Inputs/three.csv"}' | filecheck %s --check-prefix=TABLE
// RUN: distir-opt %s --verify-diagnostics -p 'pipeline-stages{stages=2},microbatch{count=2},pipeline-schedule{schedule="%S/Inputs/three.csv"}' | filecheck %s --check-prefix=STAGES
// RUN: distir-opt %s --verify-diagnostics -p 'pipeline-stages{stages=2},microbatch{count=2},pipeline-schedule{schedule="%S/Inputs/late.csv"}' | filecheck %s --check-prefix=LATE
// RUN: distir-opt %s --verify-diagnostics -p 'pipeline-stages{stages=2 virtual=2},microbatch{count=2},pipeline-schedule' | filecheck %s --check-prefix=PLAIN
// RUN: distir-opt %s --verify-diagnostics -p 'pipeline-stages{stages=3},microbatch{count=2},pipeline-schedule{schedule=zbv}' | filecheck %s --check-prefix=ODD

// Four stages on two ranks: stage s is on rank s mod 2, in a V on the way back on the rank that it came from, and with a table where it says. A
// value that stays on its rank is not sent. Both microbatches go through a stage before the next of the rank.
func.func @main(%x: tensor<4x8xf32> {dist.name = "x", dist.role = "input"}) -> (tensor<4x8xf32> {dist.name = "y", dist.role = "output"}) {
  %a = "onnx.Relu"(%x) {dist.rule = #dist.rule<[S1, S2] -> {S1: gather(0), S2: gather(1)}, found = exact>} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %b = "onnx.Relu"(%a) {dist.rule = #dist.rule<[S1, S2] -> {S1: gather(0), S2: gather(1)}, found = exact>} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %c = "onnx.Relu"(%b) {dist.rule = #dist.rule<[S1, S2] -> {S1: gather(0), S2: gather(1)}, found = exact>} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %y = "onnx.Relu"(%c) {dist.rule = #dist.rule<[S1, S2] -> {S1: gather(0), S2: gather(1)}, found = exact>} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  func.return %y : tensor<4x8xf32>
}

// CHECK:      builtin.module attributes {dist.devices = 2 : i64, dist.axes = #dist.axes<{{.*}}>} {
// CHECK:      %a = dist.call @forward_0(%x_1) on [0]
// CHECK-NEXT: %a_1 = dist.send %a to 1
// CHECK:      %a_2 = dist.call @forward_0(%x_2) on [0]
// CHECK-NEXT: %b = dist.call @forward_1(%a_1) on [1]
// CHECK-NEXT: dist.send %a_2 to 1
// CHECK-NEXT: %b_1 = dist.send %b to 0
// CHECK-NEXT: %c = dist.call @forward_2(%b_1) on [0]
// CHECK:      dist.call @forward_3(%{{.*}}) on [1]

// ZBV:        builtin.module attributes {dist.devices = 2 : i64, dist.axes = #dist.axes<{{.*}}>} {
// ZBV:        %b = dist.call @forward_1(%{{.*}}) on [1]
// ZBV:        %c = dist.call @forward_2(%b) on [1]
// ZBV-NOT:    dist.send %b
// ZBV:        dist.call @forward_3(%{{.*}}) on [0]

// TABLE:      builtin.module attributes {dist.devices = 3 : i64, dist.axes = #dist.axes<{{.*}}>} {
// TABLE:      dist.call @forward_0(%{{.*}}) on [2]
// TABLE:      dist.call @forward_1(%{{.*}}) on [0]
// TABLE:      dist.call @forward_2(%{{.*}}) on [0]
// TABLE:      dist.call @forward_3(%{{.*}}) on [1]

// STAGES: three.csv has 3 ranks, 4 stages and 2 microbatches: the program has 3 ranks, 2 stages and 2 microbatches
// LATE: late.csv: 0F1 is missing on rank 0
// PLAIN: the schedule 1f1b has 1 stage on each rank, not 2
// ODD: the schedule zbv has 2 stages on each rank: they are 3 in all
