/**
 * The lengths, to base 36, of runs of code points: to be formed, then to part a text, and so on.
 *
 * Made by `python -m tests.web.tables`.
 */

export const RUNS =
  "oo 4 4 4 7 1 1 1 k 1 b0 2 12 w k 6 1j 8 r 4 4 g 74 c 1o 3k 1c 2 1d w e 1o 68 w g 4 4 c 8 3 2 2 4 8 1 4 2 1 4 g c" +
  " k g 8 4 3 2 2 1 1 2 2 1 g 1 b 4 1 1 2l 8 8 2 28 8 m 8 3 2 2 3 8 2 4 2 1g 4 14 4 4 2 2 4 9 1 2s 8 2 3 4 1 7 2 2t" +
  " 8 2 3 1 4 7 2 1s 14 7 2 2 4 8 8 30 1 4 4 6 7 1s r 8 g 2o 8 d 4 1s 1k 8 w 5 10 4 10 8 8 1s 55 1 1 5 1 w 74 a7 w " +
  "3f 6 ls 8 g g 3k 14 5c c 3s a 5c w 1w t 2 8 15 v 1g 20 w g w 2h 1s 4 1s h 7 17 2 8 b 16 3k bg 2 6 2 12 2 6 2 8 1" +
  " 1 1 1 1 1 1 v 2 1h 1 f 1 e 2 6 1 j 2 3 1 9 1 1s 40 x w 3c 7 e8 74 1a8 5c 84 3v g 29 1s dc 1s 4 2a 3 2u e8 m4g n" +
  "5 54 w 4y 6 2 4 4 o 1n 3k o r 38 1s 1c 5c 1q w l 3d 3i i 8mc 6bk ju 2 2y 12 7 c 5 5 q 1 5 1 1 1 2 1 2 1 1s ii w " +
  "68 3k g0 u 6a g 3k b 3p 3k 1c 10 4c b 1 f 1 7 1 2 vq 8 10 3 4 8 3k w bd 1f 2o l ar 2 40 o w k 3k 1s w 8 e 1s 1t " +
  "1h w w 1s w 1s 14 3k 1a 28 8 4 2 2 3 9 1 e 7 3 5 5c w 8 4 1s 10 5c 1c 3 w 1s 14 1s 1k 34 4 74 g 2s 1s 1s m 2 1 4" +
  " 8 48 8 1s z 1s o bc 8 74 8 24 4 fa0 6 w 1c l6 1s a8 2 f58 4 42o 3k 3k 4 2pm 7 1 h 2 7 1 2 1 5 79 8 9s n w 14 15" +
  "c g 15 24 4jk wsg g50 f2";
