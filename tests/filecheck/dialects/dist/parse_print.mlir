// RUN: DISTIR_ROUNDTRIP

// CHECK-LABEL: func.func @communication
// CHECK-SAME: (%a: tensor<4x8xf32, #dist.on<0>>, %b: tensor<4x8xf32, #dist.on<1>>
func.func @communication(%a: tensor<4x8xf32, #dist.on<0>>, %b: tensor<4x8xf32, #dist.on<1>>,
                         %c: tensor<2x8xf32, #dist.on<2>>) {
  // CHECK-NEXT: = dist.send %a to 1 : tensor<4x8xf32, #dist.on<0>> -> tensor<4x8xf32, #dist.on<1>>
  %0 = dist.send %a to 1 : tensor<4x8xf32, #dist.on<0>> -> tensor<4x8xf32, #dist.on<1>>
  // CHECK-NEXT: = dist.send %a to 1 {tag = "kept"} : tensor<4x8xf32, #dist.on<0>> -> tensor<4x8xf32, #dist.on<1, "comm">>
  %1 = dist.send %a to 1 {tag = "kept"} : tensor<4x8xf32, #dist.on<0>> -> tensor<4x8xf32, #dist.on<1, "comm">>
  // CHECK-NEXT: = dist.allreduce sum %a, %b : (tensor<4x8xf32, #dist.on<0>>, tensor<4x8xf32, #dist.on<1>>) -> (tensor<4x8xf32, #dist.on<0>>, tensor<4x8xf32, #dist.on<1>>)
  %2, %3 = dist.allreduce sum %a, %b : (tensor<4x8xf32, #dist.on<0>>, tensor<4x8xf32, #dist.on<1>>) -> (tensor<4x8xf32, #dist.on<0>>, tensor<4x8xf32, #dist.on<1>>)
  // CHECK-NEXT: = dist.allreduce mean %a : (tensor<4x8xf32, #dist.on<0>>) -> tensor<4x8xf32, #dist.on<0>>
  %4 = dist.allreduce mean %a : (tensor<4x8xf32, #dist.on<0>>) -> tensor<4x8xf32, #dist.on<0>>
  // CHECK-NEXT: = dist.allgather %b, %c dim 0 : (tensor<4x8xf32, #dist.on<1>>, tensor<2x8xf32, #dist.on<2>>) -> (tensor<6x8xf32, #dist.on<1>>, tensor<6x8xf32, #dist.on<2>>)
  %5, %6 = dist.allgather %b, %c dim 0 : (tensor<4x8xf32, #dist.on<1>>, tensor<2x8xf32, #dist.on<2>>) -> (tensor<6x8xf32, #dist.on<1>>, tensor<6x8xf32, #dist.on<2>>)
  // CHECK-NEXT: = dist.reducescatter max %a, %b dim 1 : (tensor<4x8xf32, #dist.on<0>>, tensor<4x8xf32, #dist.on<1>>) -> (tensor<4x3xf32, #dist.on<0>>, tensor<4x5xf32, #dist.on<1>>)
  %7, %8 = dist.reducescatter max %a, %b dim 1 : (tensor<4x8xf32, #dist.on<0>>, tensor<4x8xf32, #dist.on<1>>) -> (tensor<4x3xf32, #dist.on<0>>, tensor<4x5xf32, #dist.on<1>>)
  // CHECK-NEXT: = dist.alltoall %a, %b split 1 concat 0 : (tensor<4x8xf32, #dist.on<0>>, tensor<4x8xf32, #dist.on<1>>) -> (tensor<8x4xf32, #dist.on<0>>, tensor<8x4xf32, #dist.on<1>>)
  %9, %10 = dist.alltoall %a, %b split 1 concat 0 : (tensor<4x8xf32, #dist.on<0>>, tensor<4x8xf32, #dist.on<1>>) -> (tensor<8x4xf32, #dist.on<0>>, tensor<8x4xf32, #dist.on<1>>)
  // CHECK-NEXT: = dist.exchange %b, %c dim 0 from [1, 0] : (tensor<4x8xf32, #dist.on<1>>, tensor<2x8xf32, #dist.on<2>>) -> (tensor<5x8xf32, #dist.on<1>>, tensor<3x8xf32, #dist.on<2>>)
  %x0, %x1 = dist.exchange %b, %c dim 0 from [1, 0] : (tensor<4x8xf32, #dist.on<1>>, tensor<2x8xf32, #dist.on<2>>) -> (tensor<5x8xf32, #dist.on<1>>, tensor<3x8xf32, #dist.on<2>>)
  // CHECK-NEXT: = dist.broadcast %a to [0, 3] : (tensor<4x8xf32, #dist.on<0>>) -> (tensor<4x8xf32, #dist.on<0>>, tensor<4x8xf32, #dist.on<3>>)
  %11, %12 = dist.broadcast %a to [0, 3] : (tensor<4x8xf32, #dist.on<0>>) -> (tensor<4x8xf32, #dist.on<0>>, tensor<4x8xf32, #dist.on<3>>)
  // CHECK-NEXT: = dist.scatter %a dim 0 to [2, 1] : (tensor<4x8xf32, #dist.on<0>>) -> (tensor<1x8xf32, #dist.on<2>>, tensor<3x8xf32, #dist.on<1>>)
  %13, %14 = dist.scatter %a dim 0 to [2, 1] : (tensor<4x8xf32, #dist.on<0>>) -> (tensor<1x8xf32, #dist.on<2>>, tensor<3x8xf32, #dist.on<1>>)
  // CHECK-NEXT: = dist.gather %b, %c dim 0 to 5 : (tensor<4x8xf32, #dist.on<1>>, tensor<2x8xf32, #dist.on<2>>) -> tensor<6x8xf32, #dist.on<5>>
  %15 = dist.gather %b, %c dim 0 to 5 : (tensor<4x8xf32, #dist.on<1>>, tensor<2x8xf32, #dist.on<2>>) -> tensor<6x8xf32, #dist.on<5>>
  // CHECK-NEXT: = dist.reduce prod %a, %b to 1 : (tensor<4x8xf32, #dist.on<0>>, tensor<4x8xf32, #dist.on<1>>) -> tensor<4x8xf32, #dist.on<1>>
  %16 = dist.reduce prod %a, %b to 1 : (tensor<4x8xf32, #dist.on<0>>, tensor<4x8xf32, #dist.on<1>>) -> tensor<4x8xf32, #dist.on<1>>
  func.return
}

// CHECK-LABEL: func.func @local
func.func @local(%x: tensor<4x8xf32>, %s: tensor<f32>, %p: tensor<2xf32, #dist.on<7, "comm">>) {
  // CHECK-NEXT: %0 = dist.slice %x [0:4, 2:6] : tensor<4x8xf32> -> tensor<4x4xf32>
  %0 = dist.slice %x [0:4, 2:6] : tensor<4x8xf32> -> tensor<4x4xf32>
  // CHECK-NEXT: %1 = dist.slice %s [] {tag} : tensor<f32> -> tensor<f32>
  %1 = dist.slice %s [] {tag} : tensor<f32> -> tensor<f32>
  // CHECK-NEXT: %2 = dist.concat %x, %0 dim 1 : (tensor<4x8xf32>, tensor<4x4xf32>) -> tensor<4x12xf32>
  %2 = dist.concat %x, %0 dim 1 : (tensor<4x8xf32>, tensor<4x4xf32>) -> tensor<4x12xf32>
  // CHECK-NEXT: %3 = dist.accumulate min %x, %x, %x : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  %3 = dist.accumulate min %x, %x, %x : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  // CHECK-NEXT: %4 = dist.zeros : tensor<2xf32, #dist.on<7, "comm">>
  %4 = dist.zeros : tensor<2xf32, #dist.on<7, "comm">>
  // CHECK-NEXT: %5 = dist.scale %p by 1/3 : tensor<2xf32, #dist.on<7, "comm">>
  %5 = dist.scale %p by 1/3 : tensor<2xf32, #dist.on<7, "comm">>
  // CHECK-NEXT: %{{.*}} = dist.cast %x : tensor<4x8xf32> -> tensor<4x8xbf16>
  %cast = dist.cast %x : tensor<4x8xf32> -> tensor<4x8xbf16>
  // CHECK-NEXT: %6 = dist.pack %4, %5 : (tensor<2xf32, #dist.on<7, "comm">>, tensor<2xf32, #dist.on<7, "comm">>) -> tuple<tensor<2xf32, #dist.on<7, "comm">>, tensor<2xf32, #dist.on<7, "comm">>>
  %6 = dist.pack %4, %5 : (tensor<2xf32, #dist.on<7, "comm">>, tensor<2xf32, #dist.on<7, "comm">>) -> tuple<tensor<2xf32, #dist.on<7, "comm">>, tensor<2xf32, #dist.on<7, "comm">>>
  // CHECK-NEXT: %7, %8 = dist.unpack %6 : (tuple<tensor<2xf32, #dist.on<7, "comm">>, tensor<2xf32, #dist.on<7, "comm">>>) -> (tensor<2xf32, #dist.on<7, "comm">>, tensor<2xf32, #dist.on<7, "comm">>)
  %7, %8 = dist.unpack %6 : (tuple<tensor<2xf32, #dist.on<7, "comm">>, tensor<2xf32, #dist.on<7, "comm">>>) -> (tensor<2xf32, #dist.on<7, "comm">>, tensor<2xf32, #dist.on<7, "comm">>)
  // CHECK-NEXT: %9 = dist.move %8 : tensor<2xf32, #dist.on<7, "comm">> -> tensor<2xf32, #dist.on<7>>
  %9 = dist.move %8 : tensor<2xf32, #dist.on<7, "comm">> -> tensor<2xf32, #dist.on<7>>
  // CHECK-NEXT: %10 = dist.pack : () -> tuple<>
  %10 = dist.pack : () -> tuple<>
  func.return
}

func.func @layer(%x: tensor<4x8xf32, #dist.on<0>>) -> tensor<4x8xf32, #dist.on<1>> {
  %0 = dist.send %x to 1 : tensor<4x8xf32, #dist.on<0>> -> tensor<4x8xf32, #dist.on<1>>
  func.return %0 : tensor<4x8xf32, #dist.on<1>>
}

func.func @nothing() {
  func.return
}

// CHECK-LABEL: func.func @calls
func.func @calls(%x: tensor<4x8xf32, #dist.on<4>>) {
  // CHECK-NEXT: %0 = dist.call @layer(%x) on [4, 5] : (tensor<4x8xf32, #dist.on<4>>) -> tensor<4x8xf32, #dist.on<5>>
  %0 = dist.call @layer(%x) on [4, 5] : (tensor<4x8xf32, #dist.on<4>>) -> tensor<4x8xf32, #dist.on<5>>
  // CHECK-NEXT: dist.call @nothing() on [9] {tag = 1 : i64} : () -> ()
  dist.call @nothing() on [9] {tag = 1 : i64} : () -> ()
  func.return
}

// A part of a global array: ranges per dim, pieces joined by `+`, an addend, a scalar.
// CHECK-LABEL: func.func @parts
// CHECK-SAME: #dist.part<[0:4, 0:8] of [8, 8]>
// CHECK-SAME: #dist.part<[0:2 + 8:10] of [16], partial sum>
// CHECK-SAME: #dist.part<[] of []>
func.func @parts(%a: tensor<4x8xf32> {dist.part = #dist.part<[0:4, 0:8] of [8, 8]>},
                 %b: tensor<4xf32> {dist.part = #dist.part<[0:2 + 8:10] of [16], partial sum>},
                 %c: tensor<f32> {dist.part = #dist.part<[] of []>}) {
  func.return
}

// CHECK: factor = #dist.rational<-2/3>, reduction = #dist<reduction mean>
"test.op"() {factor = #dist.rational<-2/3>, reduction = #dist<reduction mean>} : () -> ()
